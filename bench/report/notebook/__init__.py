"""Results in Python: data frames, tables, verdicts and figures of a results folder, as notebooks show them.

Example: `Results.load(Selection(Path("results")), cache, print).frame()`; users call `bench.load_results` instead.
"""

from bench.report.notebook.results import Results
from bench.report.notebook.shown import Page, Sentences, ShownTable

__all__ = ["Page", "Results", "Sentences", "ShownTable"]
