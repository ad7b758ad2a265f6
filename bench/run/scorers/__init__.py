"""Save fitted methods as folders (`--save-heads`), and load them elsewhere and later, to score other answers."""

from bench.run.scorers.scorer import Scorer, load_head

__all__ = ["Scorer", "load_head"]
