"""Judge tables in words: which methods are best by the tests, what they cost, what is undecided.

Every claim follows from the tests between pairs of methods. Example: `verdict_of(table).sentences[0]` is `Best by Brier
score: ccps (8.2), significantly better than each of the 9 other ranked methods, 1.2 points …`
"""

from bench.report.verdict.summary import summary_of
from bench.report.verdict.verdicts import verdict_of

__all__ = ["summary_of", "verdict_of"]
