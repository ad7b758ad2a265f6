"""Language models: loading, forward passes, generation, signals. The only package that imports transformers."""
