"""Numbers of an analysis as rows for people, as data, and as a sentence, beside the paper's where there are some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.metrics import METRICS
from bench.report import measures
from bench.report.measures import filled
from bench.report.tables.published import finite, values_of
from bench.report.text import MINUS, NO_BREAK, averaged, interval_text, plain, probability, several, shown, signed
from bench.stats.variants import SeedMean, StepRow, VariantRow, Variants, parts_of

COLUMNS = ("model", "task", "variant", "metric", "mean")
"""Columns of a file of published variants, in percent."""
ENDS = 5
"""Rows that are shown of each end of a long list."""
_LONG = 12
"""Variants from which on a list is long."""
_ALPHA = 0.05

Published = Mapping[tuple[str, str, str, str], float]
"""Model, task, variant and metric -> fraction."""


def read_published(found: Variants, results: Path) -> Published:
    """The published numbers of an analysis; empty where there are none.

    Raises:
        UserError: their file is not as it must be.
    """

    def value(line: Mapping[str, str]) -> tuple[tuple[str, str, str, str], float]:
        return (line["model"], line["task"], line["variant"], line["metric"]), finite(line["mean"]) / 100

    return dict(values_of(results, found.published, COLUMNS, value, "numbers in percent"))


def sorted_rows(found: Variants, metric: str) -> list[VariantRow]:
    """Rows of a metric: the one that the reference is furthest above first; undefined ones last."""
    return sorted(
        found.of(metric), key=lambda row: (row.difference is None, -row.difference.value if row.difference else 0)
    )


def is_long(found: Variants) -> bool:
    """Whether only the ends of the list are shown to people."""
    return len(found.of(found.metrics[-1])) > _LONG


def title(found: Variants) -> str:
    """Heading that says of what the numbers are."""
    return f"{measures.title(found)} ({100 * found.accuracy:.1f} % right)"


# --- for people -------------------------------------------------------------------------------------------------------


def variant_rows(found: Variants, published: Published) -> list[dict[str, str]]:
    """Variants for people, values in percent."""
    told: list[dict[str, str]] = []
    for name in found.metrics:
        metric = METRICS[name]
        own = next(row for row in found.rows if (row.metric, row.variant) == (name, found.reference))
        others = sorted_rows(found, name)
        # of a long list the largest and the smallest differences
        shown_rows = [*others[:ENDS], *others[-ENDS:]] if is_long(found) else found.of(name)
        for row in (own, *shown_rows):
            difference, size = row.difference, found.sizes.get(row.variant)
            paper = published.get((found.model, found.task, row.variant, name))
            share = None if difference is None else difference.seed_share
            told.append({
                "metric": metric.label,
                "variant": plain(row.variant),
                "columns": "" if size is None else str(size),
                "value": "undefined" if row.estimate is None else shown(metric, row.estimate.value),
                "interval": _ends(name, row.estimate),
                f"{found.reference} {MINUS} it": "" if difference is None else signed(metric, difference.value),
                "its interval": _ends(name, difference),
                "p": _probability(row.p),
                "Holm": _probability(row.p_corrected),
                "seeds": "" if share is None else f"{100 * share:.0f} %",
                "paper": "" if paper is None else shown(metric, paper),
            })  # fmt: skip
    return filled(told)


def _probability(p: float | None) -> str:
    return "" if p is None else probability(p)


def blocks(found: Variants, published: Published) -> list[list[dict[str, str]]]:
    """Tables for people: the variants, then the steps of a path where there is one."""
    return [rows for rows in (variant_rows(found, published), step_rows(found)) if rows]


def step_rows(found: Variants) -> list[dict[str, str]]:
    """Steps of the path for people, values in percent; none where there is no path."""
    told = []
    for step in found.steps:
        metric, share = METRICS[step.metric], step.share
        told.append({
            "metric": metric.label,
            "step": f"{plain(step.start)} → {plain(step.end)}",
            "adds": plain(step.adds),
            "difference": "undefined" if step.difference is None else signed(metric, step.difference.value),
            "its interval": _ends(step.metric, step.difference),
            "p": _probability(step.p),
            "Holm": _probability(step.p_corrected),
            "share": "" if share is None else _percent(share.value),
            "interval of the share": _of_share(share).replace(" ", NO_BREAK),
        })  # fmt: skip
    return filled(told)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", MINUS)


def _of_share(share: SeedMean | None) -> str:
    if share is None or share.low is None or share.high is None:
        return ""
    return f"{_percent(share.low)} to {_percent(share.high)}"


def tested(found: Variants) -> str:
    """Family over which p values are corrected, in words."""
    count, more = len(found.of(found.metrics[-1])), len(_own_steps(found))
    steps = f" and {several(more, 'step')}" if more else ""
    return f"{several(count, 'variant')}{steps}"


def _own_steps(found: Variants) -> list[StepRow]:
    """Steps of the last metric that aren't rows of variants as well."""
    return [step for step in found.steps if step.metric == found.metrics[-1] and step.end != found.reference]


def _ends(name: str, estimate: SeedMean | None) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return interval_text(METRICS[name], estimate.low, estimate.high).replace(" ", NO_BREAK)


def _told(name: str, estimate: SeedMean, value: str) -> str:
    ends = _ends(name, estimate).replace(NO_BREAK, " ")
    return f"{value} ({ends})" if ends else value


def legend(found: Variants, published: Published) -> list[str]:
    """Sentences below the rows."""
    count = len(found.of(found.metrics[-1]))
    what = (
        f"Percent, {averaged(found.average)}, averaged over seeds, with {100 * found.level:g} % intervals for other"
        " questions and other seeds. Differences are on the same questions and seeds; Holm: p corrected for"
        f" {tested(found)}, which intervals are not; seeds: share of the squared standard error that is the spread"
        " between seeds."
    )
    lines = [what]
    if found.steps:
        lines.append(
            f"Steps lead to {found.reference}. Share: part of the whole difference, only where that is shown to be a"
            " gain; its interval is Fieller's, with the same two errors."
        )
    if is_long(found):
        lines.append(
            f"Shown: the {ENDS} largest and the {ENDS} smallest of {count} differences; CSV and JSON have all."
        )
    if "ece" in found.metrics:
        lines.append("ECE is the raw one, as published; part of it is chance, and that part differs between variants.")
    lines += found.notes
    if any(key[:2] == (found.model, found.task) for key in published):
        return lines
    metric, reference = METRICS[found.metrics[-1]], found.reference
    of_paper = {key: value for key, value in published.items() if key[3] == found.metrics[-1]}
    for name in dict.fromkeys(row.variant for row in found.of(found.metrics[-1])):
        gaps = [
            of_paper[model, task, reference, key] - value
            for (model, task, variant, key), value in of_paper.items()
            if variant == name and (model, task, reference, key) in of_paper
        ]
        if gaps:
            lines.append(
                f"Paper, {len(gaps)} other models and tasks, single runs: {metric.label} of {reference} minus {name} is"
                f" {signed(metric, min(gaps))} to {signed(metric, max(gaps))}, median {signed(metric, median(gaps))}."
            )
    return lines


def verdict(found: Variants) -> str:
    """Sentences on what the numbers say."""
    name = found.metrics[-1]
    metric, rows = METRICS[name], [row for row in sorted_rows(found, name) if row.difference is not None]
    told = [row for row in rows if row.p_corrected is not None]
    begin = f"{found.question} "
    if not rows:
        return (
            begin + f"It can't be said: {metric.label} is undefined, as where all answers are right or all are wrong."
        )
    if not told:
        return begin + f"It can't be said: there are no intervals of {metric.label}."
    begin += _along(found)
    decided = [row for row in told if _is_decided(row)]
    widths = [
        (e.high - e.low) / 2 for row in told if (e := row.difference) and e.high is not None and e.low is not None
    ]
    width = f"{100 * median(widths):.1f} points" if metric.is_fraction else f"{median(widths):.3f}"
    unseen = (
        f"Without correction an interval reaches {width} to each side (median), so that"
        f" smaller effects can't be seen with {found.n:,} questions and {len(found.seeds)} seeds."
    )
    if not decided:
        counts = {name: sum(_is_decided(row) for row in found.of(name)) for name in found.metrics[:-1]}
        others = ", ".join(f"{count} in {METRICS[name].label}" for name, count in counts.items() if count)
        elsewhere = f" In other metrics some do: {others}." if others else ""
        is_some_step = any(map(_is_decided, _own_steps(found)))
        none = "None" if is_some_step or elsewhere else "Nothing shows: none"
        most = max(told, key=lambda row: abs(row.difference.value) if row.difference else 0)
        return begin + (
            f"{none} of the {several(len(told), 'variant')} differs significantly from {found.reference} in"
            f" {metric.label} after Holm's correction. The largest difference is {_difference(most)}, {most.variant}."
            f"{elsewhere} {unseen}"
        )
    parts = [
        f"{found.reference} is {'better' if _is_better(row) else 'worse'} than {row.variant}, by {_difference(row)},"
        f" p {_probability(row.p_corrected)}"
        for row in decided[:ENDS]
    ]
    more = f"; and {len(decided) - ENDS} more" if len(decided) > ENDS else ""
    rest = len(told) - len(decided)
    others = f" The other {rest} can't be told apart from it. {unseen}" if rest else ""
    return begin + f"In {metric.label}, after Holm's correction: {'; '.join(parts)}{more}.{others}"


def _is_decided(row: VariantRow | StepRow) -> bool:
    return row.p_corrected is not None and row.p_corrected < _ALPHA


def _along(found: Variants) -> str:
    """Sentences on the steps of the path, empty without one."""
    name = found.metrics[-1]
    steps = [step for step in found.steps if step.metric == name]
    whole = next((row for row in found.of(name) if steps and row.variant == steps[0].start), None)
    if whole is None or whole.difference is None or whole.p_corrected is None:
        return ""
    from_to = f"{METRICS[name].label} of {found.reference} minus {whole.variant} is {_difference(whole)}"
    corrected = f"p {probability(whole.p_corrected)} after Holm's correction"
    parts = [
        f"{step.adds} {_told(name, step.difference, signed(METRICS[name], step.difference.value))}"
        + ("" if step.p_corrected is None else f", p {probability(step.p_corrected)}")
        + ("" if step.share is None else f", {_percent(step.share.value)} of it ({_of_share(step.share)})")
        for step in steps
        if step.difference is not None
    ]
    if any(step.share is not None for step in steps):
        return f"{from_to}, {corrected}: {'; '.join(parts)}. "
    lacking = "a gain is not shown"
    if whole.p_corrected < _ALPHA:
        lacking = "its interval has no bounds" if _is_better(whole) else "there is no gain"
    return f"No share can be said, since {lacking}: {from_to}, {corrected}. Step by step: {'; '.join(parts)}. "


def _difference(row: VariantRow) -> str:
    assert row.difference is not None  # noqa: S101  # for the type checker
    return _told(row.metric, row.difference, signed(METRICS[row.metric], row.difference.value))


def _is_better(row: VariantRow) -> bool:
    """Whether the reference is better."""
    return row.difference is not None and (row.difference.value > 0) is bool(METRICS[row.metric].higher_is_better)


# --- as data --------------------------------------------------------------------------------------------------------


def data(found: Variants, published: Published) -> dict[str, object]:
    """Everything, as fractions with all their digits."""
    record = asdict(found) | {"verdict": verdict(found), "rows": [asdict(row) for row in found.rows]}
    for row in record["rows"]:
        row["published"] = published.get((found.model, found.task, row["variant"], row["metric"]))
    return record


def records(found: Variants, published: Published) -> Iterator[dict[str, object]]:
    """A record for each metric of each variant, and of each step."""
    shares = ("share", "share_low", "share_high")
    for row in found.rows:
        yield {
            "variant": row.variant, "columns": found.sizes.get(row.variant), "metric": row.metric,
            **parts_of(row.estimate), **parts_of(row.difference, "difference_"), "p": row.p, "p_holm": row.p_corrected,
            "published": published.get((found.model, found.task, row.variant, row.metric)),
            "against": None if row.variant == found.reference else found.reference,
            **dict.fromkeys(("adds", *shares)),
        }  # fmt: skip
    for step in found.steps:
        ends = (None,) * len(shares) if step.share is None else (step.share.value, step.share.low, step.share.high)
        yield {
            "variant": step.start, "columns": found.sizes.get(step.start), "metric": step.metric,
            **parts_of(step.difference, "difference_"), "p": step.p, "p_holm": step.p_corrected, "against": step.end,
            "adds": step.adds, **dict(zip(shares, ends, strict=True)),
        }  # fmt: skip
