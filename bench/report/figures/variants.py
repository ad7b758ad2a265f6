"""Draw a forest plot of variants of a method: the unchanged method minus each variant, with the interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.drawing import AXIS, difference_axis, draw_dot, name_rows, new_figure, use_style, write_beside
from bench.report.style import TEXT_WIDTH, built_in
from bench.report.text import interval_text, signed, with_arrow
from bench.report.variants import describe_family, is_decided, is_long, sorted_rows, title
from bench.stats.influence import TESTED
from bench.stats.variants import Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.13
"""Height of a variant's row, in inches."""
_MOST = 66
"""Maximum number of variants on one figure, for which a printed page has room."""


@use_style()
def differences_of_variants(data: Variants) -> Figure:
    """Draw a row for each variant of a method, and axes for each metric with significance tests.

    A row shows the unchanged method minus the variant. Long lists are sorted by this difference. If there are more than
    `_MOST` variants, only the largest and the smallest differences are drawn.
    """
    sort_metric, half = data.metrics[-1], _MOST // 2
    metrics = [name for name in data.metrics if name in TESTED] or data.metrics
    names = [row.variant for row in (sorted_rows(data, sort_metric) if is_long(data) else data.of(sort_metric))]
    cut = len(names) > _MOST
    names = [*names[:half], *names[-half:]] if cut else names
    note = (
        f"{data.reference} minus the variant, on the same questions and seeds, with the {100 * data.level:g} %"
        " interval for other questions and other seeds. Filled: significantly different after Holm's correction for"
        f" {describe_family(data)}; hollow: not. Points are percentage points."
        + f" Shown: the {half} largest and the {half} smallest."
        * cut
    )
    figure, axes = new_figure(
        (1, len(metrics)), (TEXT_WIDTH, ROW * len(names) + AXIS), title=title(data), note=note, sharey=True
    )
    style = built_in().of(data.method)._replace(marker="o", fill="full")
    for here, name in zip(axes.flat, metrics, strict=True):
        rows = {row.variant: row for row in data.of(name)}
        shown = [rows[name] for name in names]
        metric, diffs = METRICS[name], [row.difference for row in shown if row.difference is not None]
        here.set_label(name)
        here.set_title(f"{with_arrow(name)}, difference", loc="left")
        ends = [end for diff in diffs for end in (diff.value, *(diff.ends or ()))]
        difference_axis(here, ends, 4, percent=metric.is_fraction)
        name_rows(here, names)
        for i, row in enumerate(shown):
            diff = row.difference
            if diff is None:
                write_beside(here, i, "undefined")
                continue
            ci = f" ({interval_text(metric, *diff.ends)})" if diff.ends else ""
            write_beside(here, i, f"{signed(metric, diff.value)}{ci}")
            draw_dot(here, i, diff.value, diff.ends, (row.variant, "difference"), style, hollow=not is_decided(row))
    return figure
