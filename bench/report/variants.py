"""Report a comparison of variants of a method (`Variants`), as text and as data.

Each variant is compared with a reference variant. There can also be a path: a sequence of variants that leads to the
reference in steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.metrics import METRICS
from bench.report import measures_table
from bench.report.measures_table import about, drop_empty_columns, text_grid
from bench.report.tables.grid import TableViews
from bench.report.tables.published import finite, values_of
from bench.report.text import MINUS, NO_BREAK, averaged, interval_text, p_text, plain, plural, signed, value_text
from bench.stats.variants import SeedMean, StepRow, VariantRow, Variants, estimate_fields

COLUMNS = ("model", "task", "variant", "metric", "mean")
"""Columns of a CSV file of published variants; means are in percent."""
ENDS = 5
"""Number of rows shown from each end of a long list of variants."""
_LONG = 12
"""Maximum number of variants that a table lists in full; of more variants it shows both ends of the list."""
_ALPHA = 0.05

Published = Mapping[tuple[str, str, str, str], float]
"""(model, task, variant, metric) -> published value, as a fraction."""


def read_published(variants: Variants, results: Path) -> Published:
    """Read the values that were published for an analysis; empty if there is no file of such values.

    Raises:
        UserError: the file is malformed.
    """

    def value(line: Mapping[str, str]) -> tuple[tuple[str, str, str, str], float]:
        return (line["model"], line["task"], line["variant"], line["metric"]), finite(line["mean"]) / 100

    return dict(values_of(results, variants.published, COLUMNS, value, "numbers in percent"))


def sorted_rows(variants: Variants, metric: str) -> list[VariantRow]:
    """Return the rows of a metric, sorted by the difference of reference minus variant, the largest first.

    Variants with an undefined difference come last.
    """
    return sorted(
        variants.of(metric), key=lambda row: (row.difference is None, -row.difference.value if row.difference else 0)
    )


def is_long(variants: Variants) -> bool:
    """Return whether there are so many variants that a table shows only both ends of the list."""
    return len(variants.of(variants.metrics[-1])) > _LONG


def title(variants: Variants) -> str:
    """Return the heading of the report: method, analysis, model, task, preset, seeds, number of questions, accuracy."""
    return f"{measures_table.title(variants)} ({100 * variants.accuracy:.1f} % right)"


def views(variants: Variants, results: Path) -> TableViews:
    """Return the report as tables for people, and as CSV and JSON data.

    Raises:
        UserError: the file of published values in the folder of results is malformed.
    """
    published, steps = read_published(variants, results), step_rows(variants)
    rows, legend = variant_rows(variants, published), _legend(variants, published)
    tables = [text_grid(title(variants), rows, 2, () if steps else legend, (verdict(variants),))]
    tables += [text_grid("Steps", steps, 2, legend)] * bool(steps)
    return TableViews(tables, lambda: [*_records(variants, published)], lambda: [_data(variants, published)])


# --- for people -------------------------------------------------------------------------------------------------------


def variant_rows(variants: Variants, published: Published) -> list[dict[str, str]]:
    """Return the rows of the table of variants, without empty columns; a row maps column labels to texts."""
    rows: list[dict[str, str]] = []
    for name in variants.metrics:
        metric = METRICS[name]
        reference_row = next(row for row in variants.rows if (row.metric, row.variant) == (name, variants.reference))
        others = sorted_rows(variants, name)
        # a long list shows its largest and smallest differences
        shown_rows = [*others[:ENDS], *others[-ENDS:]] if is_long(variants) else variants.of(name)
        for row in (reference_row, *shown_rows):
            difference, size = row.difference, variants.sizes.get(row.variant)
            published_value = published.get((variants.model, variants.task, row.variant, name))
            share = None if difference is None else difference.seed_share
            rows.append({
                "metric": metric.label,
                "variant": plain(row.variant),
                "columns": "" if size is None else str(size),
                "value": "undefined" if row.estimate is None else value_text(metric, row.estimate.value),
                "interval": _interval(name, row.estimate),
                f"{variants.reference} {MINUS} it": "" if difference is None else signed(metric, difference.value),
                "its interval": _interval(name, difference),
                "p": p_text(row.p),
                "Holm": p_text(row.p_corrected),
                "seeds": "" if share is None else f"{100 * share:.0f} %",
                "paper": "" if published_value is None else value_text(metric, published_value),
            })  # fmt: skip
    return drop_empty_columns(rows)


def step_rows(variants: Variants) -> list[dict[str, str]]:
    """Return the rows of the table of steps from one variant to the next; a row maps column labels to texts.

    The list is empty if there are no steps.
    """
    rows = []
    for step in variants.steps:
        metric, share = METRICS[step.metric], step.share
        rows.append({
            "metric": metric.label,
            "step": f"{plain(step.start)} → {plain(step.end)}",
            "adds": plain(step.adds),
            "difference": "undefined" if step.difference is None else signed(metric, step.difference.value),
            "its interval": _interval(step.metric, step.difference),
            "p": p_text(step.p),
            "Holm": p_text(step.p_corrected),
            "share": "" if share is None else _percent(share.value),
            "interval of the share": _share_interval(share).replace(" ", NO_BREAK),
        })  # fmt: skip
    return drop_empty_columns(rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", MINUS)


def _share_interval(share: SeedMean | None) -> str:
    return " to ".join(map(_percent, (share and share.ends) or ()))


def describe_family(variants: Variants) -> str:
    """Return in words which tests the correction of p values covers, e.g. `12 variants and 3 steps`."""
    count, n_steps = len(variants.of(variants.metrics[-1])), len(_extra_steps(variants))
    steps = f" and {plural(n_steps, 'step')}" if n_steps else ""
    return f"{plural(count, 'variant')}{steps}"


def _extra_steps(variants: Variants) -> list[StepRow]:
    """Return the steps between variants, in the last metric, that don't end at the reference variant.

    The step that ends at the reference is left out, because the table of variants already has its test.
    """
    return [step for step in variants.steps if step.metric == variants.metrics[-1] and step.end != variants.reference]


def _interval(name: str, estimate: SeedMean | None) -> str:
    ends = estimate and estimate.ends
    return interval_text(METRICS[name], *ends).replace(" ", NO_BREAK) if ends else ""


def _with_interval(name: str, estimate: SeedMean, value: str) -> str:
    interval = _interval(name, estimate).replace(NO_BREAK, " ")
    return f"{value} ({interval})" if interval else value


def _legend(variants: Variants, published: Published) -> list[str]:
    """Return the sentences below the tables of variants and steps."""
    count = len(variants.of(variants.metrics[-1]))
    caption = (
        f"Percent, {averaged(variants.average)}, averaged over seeds, with {100 * variants.level:g} % intervals for"
        " other questions and other seeds. Differences are on the same questions and seeds; Holm: p corrected for"
        f" {describe_family(variants)}, which intervals are not; seeds: share of the squared standard error that is the"
        " spread between seeds."
    )
    lines = [caption]
    if variants.steps:
        lines.append(
            f"Steps lead to {variants.reference}. Share: part of the whole difference, only where that is shown to be a"
            " gain; its interval is Fieller's, with the same two errors."
        )
    if is_long(variants):
        lines.append(
            f"Shown: the {ENDS} largest and the {ENDS} smallest of {count} differences; CSV and JSON have all."
        )
    if "ece" in variants.metrics:
        lines.append("ECE is the raw one, as published; part of it is chance, and that part differs between variants.")
    lines += variants.notes
    if any(key[:2] == (variants.model, variants.task) for key in published):
        return lines
    metric, reference = METRICS[variants.metrics[-1]], variants.reference
    paper = {key: value for key, value in published.items() if key[3] == variants.metrics[-1]}
    for name in dict.fromkeys(row.variant for row in variants.of(variants.metrics[-1])):
        gains = [
            paper[model, task, reference, key] - value
            for (model, task, variant, key), value in paper.items()
            if variant == name and (model, task, reference, key) in paper
        ]
        if gains:
            lines.append(
                f"Paper, {len(gains)} other models and tasks, single runs: {metric.label} of {reference} minus {name}"
                f" is {signed(metric, min(gains))} to {signed(metric, max(gains))}, median"
                f" {signed(metric, median(gains))}."
            )
    return lines


def verdict(variants: Variants) -> str:
    """Return the question of the analysis and the answer that the tests give, as one text."""
    name = variants.metrics[-1]
    metric, rows = METRICS[name], [row for row in sorted_rows(variants, name) if row.difference is not None]
    testable = [row for row in rows if row.p_corrected is not None]
    start = f"{variants.question} "
    if not rows:
        return (
            start + f"It can't be said: {metric.label} is undefined, as where all answers are right or all are wrong."
        )
    halves = [(e.ends[1] - e.ends[0]) / 2 for row in testable if (e := row.difference) and e.ends]
    if not halves:
        return start + f"It can't be said: there are no intervals of {metric.label}."
    start += _describe_path(variants)
    decided = [row for row in testable if is_decided(row)]
    width = f"{100 * median(halves):.1f} points" if metric.is_fraction else f"{median(halves):.3f}"
    resolution = (
        f"Without correction an interval reaches {width} to each side (median), so that"
        f" smaller effects can't be seen with {variants.n:,} questions and {len(variants.seeds)} seeds."
    )
    if not decided:
        counts = {name: sum(is_decided(row) for row in variants.of(name)) for name in variants.metrics[:-1]}
        others = ", ".join(f"{count} in {METRICS[name].label}" for name, count in counts.items() if count)
        elsewhere = f" In other metrics some do: {others}." if others else ""
        is_some_step = any(map(is_decided, _extra_steps(variants)))
        none = "None" if is_some_step or elsewhere else "Nothing shows: none"
        largest = max(testable, key=lambda row: abs(row.difference.value) if row.difference else 0)
        return start + (
            f"{none} of the {plural(len(testable), 'variant')} differs significantly from {variants.reference} in"
            f" {metric.label} after Holm's correction. The largest difference is {_difference(largest)},"
            f" {largest.variant}.{elsewhere} {resolution}"
        )
    parts = [
        f"{variants.reference} is {'better' if _is_better(row) else 'worse'} than {row.variant}, by {_difference(row)},"
        f" p {p_text(row.p_corrected)}"
        for row in decided[:ENDS]
    ]
    more = f"; and {len(decided) - ENDS} more" if len(decided) > ENDS else ""
    rest = len(testable) - len(decided)
    others = f" The other {rest} can't be told apart from it. {resolution}" if rest else ""
    return start + f"In {metric.label}, after Holm's correction: {'; '.join(parts)}{more}.{others}"


def is_decided(row: VariantRow | StepRow) -> bool:
    """Return whether a variant or step differs significantly, with Holm's correction."""
    return row.p_corrected is not None and row.p_corrected < _ALPHA


def _describe_path(variants: Variants) -> str:
    """Describe the steps from the first variant of a path to the reference.

    The text is empty if there is no path, or if the first variant has no difference or no corrected p value.
    """
    name = variants.metrics[-1]
    steps = [step for step in variants.steps if step.metric == name]
    total = next((row for row in variants.of(name) if steps and row.variant == steps[0].start), None)
    if total is None or total.difference is None or total.p_corrected is None:
        return ""
    summary = f"{METRICS[name].label} of {variants.reference} minus {total.variant} is {_difference(total)}"
    corrected = f"p {p_text(total.p_corrected)} after Holm's correction"
    parts = [
        f"{step.adds} {_with_interval(name, step.difference, signed(METRICS[name], step.difference.value))}"
        + ("" if step.p_corrected is None else f", p {p_text(step.p_corrected)}")
        + ("" if step.share is None else f", {_percent(step.share.value)} of it ({_share_interval(step.share)})")
        for step in steps
        if step.difference is not None
    ]
    if any(step.share is not None for step in steps):
        return f"{summary}, {corrected}: {'; '.join(parts)}. "
    reason = "a gain is not shown"
    if total.p_corrected < _ALPHA:
        reason = "its interval has no bounds" if _is_better(total) else "there is no gain"
    return f"No share can be said, since {reason}: {summary}, {corrected}. Step by step: {'; '.join(parts)}. "


def _difference(row: VariantRow) -> str:
    assert row.difference is not None  # noqa: S101  # for the type checker
    return _with_interval(row.metric, row.difference, signed(METRICS[row.metric], row.difference.value))


def _is_better(row: VariantRow) -> bool:
    """Return whether the reference variant is better than the variant of the row."""
    return row.difference is not None and (row.difference.value > 0) is bool(METRICS[row.metric].higher_is_better)


# --- as data --------------------------------------------------------------------------------------------------------


def _data(variants: Variants, published: Published) -> dict[str, object]:
    """Return the whole analysis as JSON data, with unrounded fractions, the verdict and the published values."""
    record = asdict(variants) | {"verdict": verdict(variants), "rows": [asdict(row) for row in variants.rows]}
    for row in record["rows"]:
        row["published"] = published.get((variants.model, variants.task, row["variant"], row["metric"]))
    return record


def _records(variants: Variants, published: Published) -> Iterator[dict[str, object]]:
    """Yield a CSV record for each variant and metric, and then one for each metric and step between variants."""
    shares = ("share", "share_low", "share_high")
    for row in variants.rows:
        yield about(variants) | {
            "variant": row.variant, "columns": variants.sizes.get(row.variant), "metric": row.metric,
            **estimate_fields(row.estimate), **estimate_fields(row.difference, "difference_"),
            "p": row.p, "p_holm": row.p_corrected,
            "published": published.get((variants.model, variants.task, row.variant, row.metric)),
            "against": None if row.variant == variants.reference else variants.reference,
            **dict.fromkeys(("adds", *shares)),
        }  # fmt: skip
    for step in variants.steps:
        ends = (None,) * len(shares) if step.share is None else (step.share.value, step.share.low, step.share.high)
        yield about(variants) | {
            "variant": step.start, "columns": variants.sizes.get(step.start), "metric": step.metric,
            **estimate_fields(step.difference, "difference_"), "p": step.p,
            "p_holm": step.p_corrected, "against": step.end,
            "adds": step.adds, **dict(zip(shares, ends, strict=True)),
        }  # fmt: skip
