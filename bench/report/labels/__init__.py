"""Label budgets for people: tables, a figure, a verdict, and the paper's label counts beside ours."""

from bench.report.labels.figure import small_multiples
from bench.report.labels.published import PaperCount, read_counts
from bench.report.labels.tables import views
from bench.report.labels.verdict import verdict

__all__ = ["PaperCount", "read_counts", "small_multiples", "verdict", "views"]
