"""The model: the only place that imports transformers, and the only place where tokens meet a model."""
