"""Draw the figures of a comparison of methods, from tables and the answers and confidences of their results.

Figures are drawn one by one, or all into files, by the module `write`. A function takes tables, one for each model and
task, and returns a matplotlib figure at its printed size. `save` writes a figure to a file, the same bytes each time.
The note below a figure says what the figure leaves out. Example: `write.write_figures(tables, lambda row:
read_records(path_of(row, results)), Path("figures"))`.
"""

from bench.report.figures.confidence import confidence_histograms
from bench.report.figures.cost import cost_quality
from bench.report.figures.drawing import save
from bench.report.figures.forest import differences_to_best
from bench.report.figures.intervals import metric_intervals
from bench.report.figures.overview import reliability_overview
from bench.report.figures.reliability import reliability
from bench.report.figures.risk import risk_coverage
from bench.report.figures.subjects import subject_differences
from bench.report.figures.wins import win_matrix

__all__ = [
    "confidence_histograms", "cost_quality", "differences_to_best", "metric_intervals", "reliability",
    "reliability_overview", "risk_coverage", "save", "subject_differences", "win_matrix",
]  # fmt: skip
