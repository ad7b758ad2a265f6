"""Scorers: fitted methods saved as folders (`--save-heads`), to score answers elsewhere and later."""

from bench.run.scorers.scorer import Scorer, load_head

__all__ = ["Scorer", "load_head"]
