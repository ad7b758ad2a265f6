"""The sentence: resolve, plan, read, fit, predict, score, write. Start at `pipeline.py`."""
