"""Heads: what a method learned on a model, kept as a folder, to score answers with it elsewhere and later."""

from bench.run.scorers.scorer import Scorer, load_head

__all__ = ["Scorer", "load_head"]
