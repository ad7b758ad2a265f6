"""Heads: what a method learned on a model, kept as a folder, to score answers with it elsewhere and later."""

from bench.run.heads.head import Head, load_head

__all__ = ["Head", "load_head"]
