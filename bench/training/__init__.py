"""Training of a LoRA adapter in a separate process: `AdapterTrainer` starts `python -m bench.training CONFIG.json`.

The parent writes token ids and a configuration into a private folder. The child loads the model, trains, and writes an
adapter in peft's format into this folder. If the child crashes, the parent reports the crash as an error message.
"""
