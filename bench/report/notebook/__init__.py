"""Results in Python: data frames, tables, verdicts and figures of a results folder, as notebooks show them.

Example: `Results.load(Selection(Path("results")), cache).frame()`; people come here by `bench.load_results`.
"""

from bench.report.notebook.results import Results
from bench.report.notebook.shown import Page, Sentences, ShownTable

__all__ = ["Page", "Results", "Sentences", "ShownTable"]
