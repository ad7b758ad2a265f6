"""Save fitted methods as folders (`--save-heads`), and load them as scorers of other answers, elsewhere and later."""

from bench.run.scorers.scorer import Scorer, load_head

__all__ = ["Scorer", "load_head"]
