"""Tables of a study of label budgets: metrics by number of labels, crossings of learning curves, and label counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report.label_budgets.verdict import labels_used, verdict
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.tables.published import values_of
from bench.report.text import EN_DASH, averaged, count, percent, plain, plural, seeds_text, with_arrow, with_half
from bench.stats.influence import RANKED
from bench.stats.label_budgets import METRICS_SHOWN, Crossing, LabelCurves
from bench.stats.variants import estimate_fields

AHEAD, PASSING, SAME = "*", "†", "same"
FILE = "label_distribution.csv"
COLUMNS = ("task", "split", "model", "correct", "incorrect", "total")


def views(curves: LabelCurves, published: Sequence[PaperCount] = ()) -> TableViews:
    """Return a study of label budgets (metrics by number of labels) on a task, as grids, CSV records and JSON data."""
    tested = {gain.metric for gain in curves.gains if gain.p is not None}
    grids = [
        *(_numbers(curves, metric) for metric in METRICS_SHOWN),
        *(_crossings(curves, metric) for metric in METRICS_SHOWN if metric in tested),
        _counts(curves, published),
    ]

    def data() -> list[dict[str, Any]]:
        """Return the content of the JSON file: the whole study, with fractions that aren't rounded."""
        papers = (paper_count_of(published, curves.study.model, c.split) for c in curves.study.counts)
        extra = {"verdict": list(verdict(curves)), "paper_counts": [asdict(c) for c in papers if c is not None]}
        return [asdict(curves) | extra]

    return TableViews(grids, lambda: list(_records(curves)), data)


def ordered_methods(curves: LabelCurves) -> tuple[str, ...]:
    """Return the methods of the study in table order.

    Trained methods come first, then methods whose scores are scaled by labels, then methods that use no labels.
    """
    return (*sorted(curves.study.trained), *sorted(curves.study.scaled), *sorted(curves.study.untold))


def is_label_independent(curves: LabelCurves, method: str, metric: str) -> bool:
    """Whether a metric of a method can't change with the number of labels.

    True if the method uses no labels. Also true if labels only scale the method's scores, and the metric depends only
    on the order of scores.
    """
    study = curves.study
    return method in study.untold or (metric in RANKED and method in study.scaled)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(curves: LabelCurves, metric: str) -> Grid:
    """Build the table of a metric: rows are methods, columns are numbers of labels.

    The table of the first metric also has the verdict.
    """
    study, rows = curves.study, []
    ahead = {(test.method, test.size) for test in curves.ahead if test.metric == metric and test.is_shown(study.level)}
    total, level = len(study.seeds), f"{100 * study.level:g} %"
    for k, name in enumerate(ordered_methods(curves)):
        by_size, cells = {point.size: point for point in curves.of(name, metric)}, []
        for size in study.sizes:
            point = by_size[size]
            notes = [f"{draws} of {total} draws: {reason}" for reason, draws in point.missing.items()]
            if point.estimate is None:
                cells.append(Cell("none", notes=tuple(map(plain, notes))))
            elif is_label_independent(curves, name, metric) and size != study.sizes[0]:
                cells.append(Cell(SAME))
            else:
                if point.draws < total:
                    notes.insert(0, f"mean of {point.draws} of {total} draws, the others have no number")
                text = with_half(metric, point.estimate.value, point.estimate.ends)
                cells.append(Cell(text, mark=AHEAD * ((name, size) in ahead), notes=tuple(map(plain, notes))))
        note = _label_limit(curves, name) if name in study.trained else ()
        rows.append(GridRow([Cell(plain(name), notes=note), *cells], begins_block=k == len(study.trained) > 0))
    facts = [f"{study.model} on {study.task}: {with_arrow(metric)} by the number of labels"]
    is_first = metric == METRICS_SHOWN[0]
    if is_first:
        facts += [describe_data(curves), *(f"{name} takes no part: {reason}." for name, reason in study.absent.items())]
    caption = (
        f"Percent, {averaged(curves.average)}, averaged over draws, ± half the {level} interval for other questions and"
        f" other draws of labels (from these {study.available:,}) with other training seeds. All labels are one draw:"
        " there the interval is for other questions and other training seeds."
    )
    mark_text = (
        f"{AHEAD}: better than every untrained method with as many labels, p < {1 - study.level:.2g} by Holm's"
        " correction for all trained methods and sizes of the metric."
    )
    legend = [caption]
    validation = ", ".join(f"{count(n_validation)} of {count(size)}" for size, n_validation in study.validation.items())
    if validation:
        legend.append(
            f"Labels are those of training and validation together; validation has {validation}. A method that is told"
            " labels of one of the two only gets the whole budget from it, or all that it has. Draws are the same for"
            " all methods, and larger ones contain smaller ones."
        )
    legend += [mark_text, f"{SAME}: it does not depend on labels."]
    headings = [f"all {count(size)}" if size == study.available else count(size) for size in study.sizes]
    return Grid(
        tuple(map(plain, facts)),
        (Column("method", is_left=True), *(Column(head, is_metric=True) for head in headings)),
        tuple(rows), tuple(legend), curves.notes if is_first else (), verdict(curves) if is_first else (),
    )  # fmt: skip


def _label_limit(curves: LabelCurves, method: str) -> tuple[str, ...]:
    """Return a footnote if a method can't use the largest requested number of labels, as its split has fewer.

    Return an empty tuple otherwise.
    """
    used = labels_used(curves, method)
    most = max(used.values(), default=0)
    if not 0 < most < max(used, default=0):
        return ()
    return (f"is told {count(most)} labels at most, all that there are of the split that it learns from",)


def describe_data(curves: LabelCurves) -> str:
    """Describe the data of the study: preset, random draws of labels, questions, labels, tokens."""
    study, seeds = curves.study, curves.study.seeds
    return (
        f"Preset {study.preset}, {plural(len(seeds), 'draw')} of labels ({seeds_text(seeds)}), {curves.n:,} questions"
        f" ({percent(curves.accuracy)} % right), {study.available:,} labels to be told; {study.forward_tokens:,} tokens"
        " were read for it."
    )


# --- crossings --------------------------------------------------------------------------------------------------------


def _crossings(curves: LabelCurves, metric: str) -> Grid:
    """Build the table of where learning curves cross in a metric: rows are untrained methods, columns trained ones."""
    study = curves.study
    crossings = {(c.method, c.untrained): c for c in curves.crossings if c.metric == metric}
    trained, rows = sorted(study.trained), []
    for untrained in (name for name in ordered_methods(curves) if name not in study.trained):
        cells = [Cell(plain(untrained))]
        for name in trained:
            crossing = crossings.get((name, untrained))
            is_passing = crossing is not None and crossing.better_from is None and bool(crossing.better_at)
            text = "none" if crossing is None else crossing_range(crossing, labels_used(curves, name))
            cells.append(Cell(text, mark=PASSING * is_passing))
        rows.append(GridRow(cells))
    caption = f"labels at which a trained method overtakes an untrained one, {with_arrow(metric)}"
    legend = [
        (
            "a to b: shown to be worse with a labels, and better from b labels on; ≤ b: better from b on, worse"
            f" nowhere; > a: worse with a labels, better with no larger number; {EN_DASH}: neither."
        ),
        f"{PASSING}: shown to be better with some numbers of labels, but not with all larger ones.",
        (
            f"Shown: p < {1 - study.level:.2g} by Holm's correction for the sizes of a pair; of many pairs that don't"
            " differ, one in twenty may still seem to."
        ),
    ]
    if any(_label_limit(curves, name) for name in trained):
        legend.append("Labels are those that the trained method was told.")
    columns = (Column("untrained", is_left=True), *(Column(plain(name), is_metric=True) for name in trained))
    return Grid((f"{study.model} on {study.task}: {caption}",), columns, tuple(rows), tuple(legend))


def crossing_range(crossing: Crossing, labels: Mapping[int, int]) -> str:
    """Format the range of label counts within which a trained method's curve crosses an untrained method's.

    `labels` maps a requested number of labels to the number that the trained method used.

    >>> labels = {20: 20, 50: 50, 100: 80, 200: 80}  # requested -> used for training
    >>> crossing_range(Crossing("a", "b", "brier", 100, (20, 50), (100, 200)), labels)
    '50 to 80'
    >>> crossing_range(Crossing("a", "b", "brier", 20, (), (20,)), labels)
    '≤ 20'
    >>> crossing_range(Crossing("a", "b", "brier", None, (20,), ()), labels)
    '> 20'
    """
    worse = max((labels[size] for size in crossing.worse_at), default=None)
    if crossing.better_from is None:
        return EN_DASH if worse is None else f"> {count(worse)}"
    better = count(labels[crossing.better_from])
    return f"≤ {better}" if worse is None else f"{count(worse)} to {better}"


# --- label counts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperCount:
    """Numbers of right and wrong answers of a model on a split of a task, as the reproduced paper reports them."""

    model: str
    task: str
    split: str
    right: int
    wrong: int

    @property
    def base_rate(self) -> float:
        """Share of right answers."""
        return self.right / (self.right + self.wrong)


def read_counts(results: Path) -> tuple[PaperCount, ...]:
    """Read the numbers of right and wrong answers that the reproduced paper reports; empty if there is no such file.

    Args:
        results: folder of results. Counts are read from its subfolder `paper`, or else from the source checkout.

    Raises:
        UserError: the file is malformed.
    """

    def paper_count(line: Mapping[str, str]) -> PaperCount:
        right, wrong, total = (int(line[name]) for name in ("correct", "incorrect", "total"))
        if right + wrong != total or min(right, wrong) < 0 or not total:
            raise ValueError(f"got {right} + {wrong} = {total}")
        return PaperCount(line["model"], line["task"], line["split"], right, wrong)

    return tuple(values_of(results, FILE, COLUMNS, paper_count, "counts of right and wrong answers"))


def paper_count_of(published: Sequence[PaperCount], model: str, split: str) -> PaperCount | None:
    """Return the reproduced paper's counts for a model and a split (`task/split`); None if it reports none."""
    return next((p for p in published if (p.model, f"{p.task}/{p.split}") == (model, split)), None)


def _counts(curves: LabelCurves, published: Sequence[PaperCount]) -> Grid:
    study = curves.study
    columns = [Column("split", is_left=True), Column("right"), Column("wrong"), Column("right, %")]
    paper_counts = {row.split: paper_count_of(published, study.model, row.split) for row in study.counts}
    has_paper, rows = any(paper_counts.values()), []
    for row in study.counts:
        texts, paper = ([count(row.right), count(row.wrong), percent(row.base_rate)], paper_counts[row.split])
        if has_paper:
            texts += [count(paper.right), count(paper.wrong), percent(paper.base_rate)] if paper else [EN_DASH] * 3
        rows.append(GridRow([Cell(plain(row.split)), *map(Cell, texts)]))
    remark, training = "", [row for row in published if row.split in {"train", "validation"}]
    if has_paper:
        columns += [Column("right", "paper"), Column("wrong", "paper"), Column("right, %", "paper")]
    elif training:
        rates = [percent(rate) for rate in sorted(row.base_rate for row in training)]
        sizes = [count(size) for size in sorted(row.right + row.wrong for row in training)]
        remark = (
            f"Paper, {len(training)} training and validation splits of other models and tasks, {sizes[0]} to"
            f" {sizes[-1]} answers each: {rates[0]} to {rates[-1]} % right."
        )
    facts = (f"{study.model} on {study.task}: answers that can be told as labels",)
    return Grid(facts, tuple(columns), tuple(rows), remarks=(remark,) if remark else ())


# --- data -------------------------------------------------------------------------------------------------------------


def _records(curves: LabelCurves) -> Iterator[dict[str, Any]]:
    ahead = {(a.method, a.metric, a.size): a for a in curves.ahead}
    study = curves.study
    base = {"model": study.model, "task": study.task, "preset": study.preset}
    for point in curves.points:
        test = ahead.get((point.method, point.metric, point.size))
        yield {
            **base, "method": point.method, "untrained": "", "metric": point.metric, "labels": point.size,
            "labels_told": point.labels, "draws": point.draws, "draws_asked": len(study.seeds),
            **estimate_fields(point.estimate), "p_beats_all": None if test is None else test.p,
            "p_beats_all_holm": None if test is None else test.p_holm,
        }  # fmt: skip
    for gain in curves.gains:
        yield {
            **base, "method": gain.method, "untrained": gain.untrained, "metric": gain.metric, "labels": gain.size,
            **estimate_fields(gain.difference), "p": gain.p, "p_holm": gain.p_holm,
        }  # fmt: skip
