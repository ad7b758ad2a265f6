"""Training an adapter in a process of its own: `AdapterTrainer` starts `python -m bench.training CONFIG.json`.

The parent writes token ids and a configuration into a private folder; the child loads the model, trains, and leaves an
adapter in peft's format there. If the child crashes, the parent reports the crash as an error message.
"""
