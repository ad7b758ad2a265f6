"""Curves as tables: numbers by size, sizes at which curves cross, label counts; for people and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from bench.metrics import METRICS
from bench.report.labels.published import PaperCount, counts_of
from bench.report.labels.verdict import leads, told_of, verdict
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, count, half_width, percent, plain, shown, with_arrow
from bench.stats.labels import METRICS_SHOWN, Crossing, LabelCurves, Point
from bench.stats.resampling import RANKED
from bench.stats.variants import parts_of

AHEAD, PASSING, SAME = "*", "†", "same"


def views(found: Sequence[LabelCurves], published: Sequence[PaperCount]) -> TableViews:
    """Studies of several tests for every format."""
    return TableViews(
        [grid for each in found for grid in _grids(each, published)],
        lambda: [record for each in found for record in _records(each)],
        lambda: [data(each, published) for each in found],
    )


def _grids(curves: LabelCurves, published: Sequence[PaperCount]) -> Iterator[Grid]:
    for number, metric in enumerate(METRICS_SHOWN):
        yield _numbers(curves, metric, told=verdict(curves) if not number else ())
    for metric in METRICS_SHOWN:
        if any(each.metric == metric and each.p is not None for each in curves.gains):
            yield _crossings(curves, metric)
    yield _counts(curves, published)


def methods_of(curves: LabelCurves) -> tuple[str, ...]:
    """Methods that take part: those that learn, those that are scaled, those that are told nothing."""
    return (*sorted(curves.study.trained), *sorted(curves.study.scaled), *sorted(curves.study.untold))


def is_flat(curves: LabelCurves, method: str, metric: str) -> bool:
    """Whether a method's number can't depend on labels: it is told none, or scaling leaves the order as it is."""
    study = curves.study
    return method in study.untold or (metric in RANKED and method in study.scaled)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(curves: LabelCurves, metric: str, told: tuple[str, ...]) -> Grid:
    """Rows are methods, columns numbers of labels."""
    study, rows, before = curves.study, [], None
    shown_ahead = {(a.method, a.size) for a in curves.ahead if a.metric == metric and a.is_shown(study.level)}
    for name in methods_of(curves):
        by_size = {point.size: point for point in curves.of(name, metric)}
        group = name in study.trained
        cells = [
            _number(curves, by_size[size], is_ahead=(name, size) in shown_ahead, is_first=not i)
            for i, size in enumerate(study.sizes)
        ]
        note = _fewer(curves, name) if group else ()
        rows.append(GridRow([Cell(plain(name), notes=note), *cells], is_apart=before is True and not group))
        before = group
    facts = [f"{study.model} on {study.task}: {with_arrow(metric)} by the number of labels"]
    if metric == METRICS_SHOWN[0]:
        facts.append(basis(curves))
        facts += [f"{name} takes no part: {reason}." for name, reason in study.absent.items()]
    return Grid(
        tuple(map(plain, facts)),
        (Column("method", is_left=True), *(Column(head(curves, size), is_metric=True) for size in study.sizes)),
        tuple(rows), tuple(_legend(curves)), curves.notes if metric == METRICS_SHOWN[0] else (), told,
        leads(curves) if told else (0,),
    )  # fmt: skip


def _fewer(curves: LabelCurves, method: str) -> tuple[str, ...]:
    """Footnote of a method that learned from fewer labels than the largest number asked for."""
    own = told_of(curves, method)
    most = max(own.values(), default=0)
    if not 0 < most < max(own, default=0):
        return ()
    return (f"is told {count(most)} labels at most, all that there are of the split that it learns from",)


def head(curves: LabelCurves, size: int) -> str:
    """A number of labels; it is said where these are all."""
    return f"all {count(size)}" if size == curves.study.available else count(size)


def basis(curves: LabelCurves) -> str:
    """Sentence on what the numbers rest on."""
    study, seeds = curves.study, curves.study.seeds
    return (
        f"Preset {study.preset}, {len(seeds)} draw{'s' * (len(seeds) > 1)} of labels (seed{'s' * (len(seeds) > 1)}"
        f" {', '.join(map(str, seeds))}), {curves.n:,} questions ({percent(curves.accuracy)} % right),"
        f" {study.available:,} labels to be told; {study.forward_tokens:,} tokens were read for it."
    )


def _number(curves: LabelCurves, point: Point, *, is_ahead: bool, is_first: bool) -> Cell:
    total = len(curves.study.seeds)
    notes = [f"{draws} of {total} draws: {reason}" for reason, draws in point.missing.items()]
    if point.estimate is None:
        return Cell("none", notes=tuple(map(plain, notes)))
    if is_flat(curves, point.method, point.metric) and not is_first:
        return Cell(SAME)
    if point.draws < total:
        notes.insert(0, f"mean of {point.draws} of {total} draws, the others have no number")
    metric, value = METRICS[point.metric], point.estimate.value
    half = half_width(metric, value, point.estimate.low, point.estimate.high)
    return Cell(shown(metric, value) + f" ±{half}" * bool(half), mark=AHEAD * is_ahead, notes=tuple(map(plain, notes)))


def _legend(curves: LabelCurves) -> Iterator[str]:
    study = curves.study
    level = f"{100 * study.level:g} %"
    yield (
        f"Percent, mean over subjects and draws, ± half the {level} interval for other questions and other draws of"
        f" labels (from these {study.available:,}) with other training seeds. All labels are one draw: there the"
        " interval is for other questions and other training seeds."
    )
    held = ", ".join(f"{count(own)} of {count(size)}" for size, own in study.validation.items())
    if held:
        yield (
            f"Labels are those of training and validation together; validation has {held}. A method that is told"
            " labels of one of the two only gets the whole budget from it, or all that it has. Draws are the same for"
            " all methods, and larger ones contain smaller ones."
        )
    yield (
        f"{AHEAD}: better than every untrained method with as many labels, p < {1 - study.level:.2g} by Holm's"
        " correction for all trained methods and sizes of the metric."
    )
    yield f"{SAME}: it does not depend on labels."


# --- crossings --------------------------------------------------------------------------------------------------------


def _crossings(curves: LabelCurves, metric: str) -> Grid:
    """Rows are untrained methods, columns trained ones."""
    study = curves.study
    found = {(c.method, c.untrained): c for c in curves.crossings if c.metric == metric}
    trained = sorted(study.trained)
    rows = [
        GridRow([Cell(plain(other)), *(_crossing(found.get((name, other)), told_of(curves, name)) for name in trained)])
        for other in methods_of(curves)
        if other not in study.trained
    ]
    what = f"labels at which a trained method overtakes an untrained one, {with_arrow(metric)}"
    facts = (f"{study.model} on {study.task}: {what}",)
    first = (
        "a to b: shown to be worse with a labels, and better from b labels on; ≤ b: better from b on, worse nowhere;"
        f" > a: worse with a labels, better with no larger number; {EN_DASH}: neither."
    )
    second = f"{PASSING}: shown to be better with some numbers of labels, but not with all larger ones."
    third = (
        f"Shown: p < {1 - study.level:.2g} by Holm's correction for the sizes of a pair; of many pairs that don't"
        " differ, one in twenty may still seem to."
    )
    fourth = ("Labels are those that the trained method was told.",) if any(_fewer(curves, n) for n in trained) else ()
    return Grid(facts, (Column("untrained", is_left=True), *(Column(plain(name), is_metric=True) for name in trained)),
                tuple(rows), (first, second, third, *fourth))  # fmt: skip


def _crossing(crossing: Crossing | None, told: Mapping[int, int]) -> Cell:
    """Cell of a pair, in labels that the trained method was told."""
    if crossing is None:
        return Cell("none")
    start = crossing.better_from
    worse, better = (tuple(told[size] for size in sizes) for sizes in (crossing.worse_at, crossing.better_at))
    crossing = replace(crossing, better_from=None if start is None else told[start], worse_at=worse, better_at=better)
    return Cell(bracket(crossing), mark=PASSING * (crossing.better_from is None and bool(crossing.better_at)))


def bracket(crossing: Crossing) -> str:
    """Numbers of labels between which the curves cross, as far as that is shown.

    >>> bracket(Crossing("a", "b", "brier", 100, (20, 50), (100, 200)))
    '50 to 100'
    >>> bracket(Crossing("a", "b", "brier", 20, (), (20,))), bracket(Crossing("a", "b", "brier", None, (20,), ()))
    ('≤ 20', '> 20')
    """
    worse = max(crossing.worse_at, default=None)
    if crossing.better_from is None:
        return EN_DASH if worse is None else f"> {count(worse)}"
    if worse is None:
        return f"≤ {count(crossing.better_from)}"
    return f"{count(worse)} to {count(crossing.better_from)}"


# --- label counts -----------------------------------------------------------------------------------------------------


def _counts(curves: LabelCurves, published: Sequence[PaperCount]) -> Grid:
    study = curves.study
    columns = [Column("split", is_left=True), Column("right"), Column("wrong"), Column("right, %")]
    papers = {each.split: counts_of(published, study.model, each.split) for each in study.counts}
    has_paper = any(papers.values())
    rows = []
    for each in study.counts:
        cells = [
            Cell(plain(each.split)),
            Cell(count(each.right)),
            Cell(count(each.wrong)),
            Cell(percent(each.base_rate)),
        ]
        paper = papers[each.split]
        if has_paper:
            numbers = (count(paper.right), count(paper.wrong), percent(paper.base_rate)) if paper else (EN_DASH,) * 3
            cells += map(Cell, numbers)
        rows.append(GridRow(cells))
    if has_paper:
        columns += [Column("right", "paper"), Column("wrong", "paper"), Column("right, %", "paper")]
    remarks = () if has_paper else tuple(_range_of(published))
    facts = (f"{study.model} on {study.task}: answers that can be told as labels",)
    return Grid(facts, tuple(columns), tuple(rows), remarks=remarks)


def _range_of(published: Sequence[PaperCount]) -> Iterator[str]:
    """Sentence on the paper's splits where it has not this one."""
    learned = [each for each in published if each.split in {"train", "validation"}]
    if learned:
        rates = sorted(each.base_rate for each in learned)
        sizes = sorted(each.right + each.wrong for each in learned)
        yield (
            f"Paper, {len(learned)} training and validation splits of other models and tasks, {count(sizes[0])} to"
            f" {count(sizes[-1])} answers each: {percent(rates[0])} to {percent(rates[-1])} % right."
        )


# --- data -------------------------------------------------------------------------------------------------------------


def _records(curves: LabelCurves) -> Iterator[dict[str, Any]]:
    ahead = {(a.method, a.metric, a.size): a for a in curves.ahead}
    study = curves.study
    base = {"model": study.model, "task": study.task, "preset": study.preset}
    for point in curves.points:
        of = ahead.get((point.method, point.metric, point.size))
        yield {
            **base, "method": point.method, "untrained": "", "metric": point.metric, "labels": point.size,
            "labels_told": point.labels, "draws": point.draws, "draws_asked": len(study.seeds),
            **parts_of(point.estimate), "p_beats_all": None if of is None else of.p,
            "p_beats_all_holm": None if of is None else of.p_holm,
        }  # fmt: skip
    for gain in curves.gains:
        yield {
            **base, "method": gain.method, "untrained": gain.untrained, "metric": gain.metric, "labels": gain.size,
            **parts_of(gain.difference), "p": gain.p, "p_holm": gain.p_holm,
        }  # fmt: skip


def data(curves: LabelCurves, published: Sequence[PaperCount]) -> dict[str, Any]:
    """Everything, as fractions with all their digits."""
    record = asdict(curves) | {"verdict": list(verdict(curves))}
    papers = (counts_of(published, curves.study.model, each.split) for each in curves.study.counts)
    record["paper_counts"] = [asdict(each) for each in papers if each is not None]
    return record
