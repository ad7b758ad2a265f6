"""Language models: loading, packed forward passes, generation, signals. The only package that imports transformers."""
