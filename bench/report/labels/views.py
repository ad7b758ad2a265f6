"""Curves as tables: numbers by size, sizes at which curves cross, label counts; for people and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report.labels.verdict import told_of, verdict
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.tables.published import values_of
from bench.report.text import EN_DASH, averaged, count, percent, plain, seeds_text, several, with_arrow, with_half
from bench.stats.influence import RANKED
from bench.stats.labels import METRICS_SHOWN, Crossing, LabelCurves
from bench.stats.variants import parts_of

AHEAD, PASSING, SAME = "*", "†", "same"
FILE = "label_distribution.csv"
COLUMNS = ("task", "split", "model", "correct", "incorrect", "total")


def views(curves: LabelCurves, published: Sequence[PaperCount] = ()) -> TableViews:
    """The study of one test for every format."""
    tested = {gain.metric for gain in curves.gains if gain.p is not None}
    grids = [
        *(_numbers(curves, metric) for metric in METRICS_SHOWN),
        *(_crossings(curves, metric) for metric in METRICS_SHOWN if metric in tested),
        _counts(curves, published),
    ]

    def data() -> list[dict[str, Any]]:
        """Everything, as fractions with all their digits."""
        papers = (counts_of(published, curves.study.model, each.split) for each in curves.study.counts)
        own = {"verdict": list(verdict(curves)), "paper_counts": [asdict(each) for each in papers if each is not None]}
        return [asdict(curves) | own]

    return TableViews(grids, lambda: list(_records(curves)), data)


def methods_of(curves: LabelCurves) -> tuple[str, ...]:
    """Methods that take part: those that learn, those that are scaled, those that are told nothing."""
    return (*sorted(curves.study.trained), *sorted(curves.study.scaled), *sorted(curves.study.untold))


def is_flat(curves: LabelCurves, method: str, metric: str) -> bool:
    """Whether a method's number can't depend on labels: it is told none, or scaling leaves the order as it is."""
    study = curves.study
    return method in study.untold or (metric in RANKED and method in study.scaled)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(curves: LabelCurves, metric: str) -> Grid:
    """Rows are methods, columns numbers of labels; the table of the first metric has the verdict."""
    study, rows = curves.study, []
    ahead = {(a.method, a.size) for a in curves.ahead if a.metric == metric and a.is_shown(study.level)}
    total, level = len(study.seeds), f"{100 * study.level:g} %"
    for k, name in enumerate(methods_of(curves)):
        by_size, cells = {point.size: point for point in curves.of(name, metric)}, []
        for size in study.sizes:
            point = by_size[size]
            notes = [f"{draws} of {total} draws: {reason}" for reason, draws in point.missing.items()]
            if point.estimate is None:
                cells.append(Cell("none", notes=tuple(map(plain, notes))))
            elif is_flat(curves, name, metric) and size != study.sizes[0]:
                cells.append(Cell(SAME))
            else:
                if point.draws < total:
                    notes.insert(0, f"mean of {point.draws} of {total} draws, the others have no number")
                text = with_half(metric, point.estimate.value, point.estimate.low, point.estimate.high)
                cells.append(Cell(text, mark=AHEAD * ((name, size) in ahead), notes=tuple(map(plain, notes))))
        note = _fewer(curves, name) if name in study.trained else ()
        rows.append(GridRow([Cell(plain(name), notes=note), *cells], is_apart=k == len(study.trained) > 0))
    facts = [f"{study.model} on {study.task}: {with_arrow(metric)} by the number of labels"]
    is_first = metric == METRICS_SHOWN[0]
    if is_first:
        facts += [basis(curves), *(f"{name} takes no part: {reason}." for name, reason in study.absent.items())]
    what = (
        f"Percent, {averaged(curves.average)}, averaged over draws, ± half the {level} interval for other questions and"
        f" other draws of labels (from these {study.available:,}) with other training seeds. All labels are one draw:"
        " there the interval is for other questions and other training seeds."
    )
    better = (
        f"{AHEAD}: better than every untrained method with as many labels, p < {1 - study.level:.2g} by Holm's"
        " correction for all trained methods and sizes of the metric."
    )
    legend = [what]
    held = ", ".join(f"{count(own)} of {count(size)}" for size, own in study.validation.items())
    if held:
        legend.append(
            f"Labels are those of training and validation together; validation has {held}. A method that is told"
            " labels of one of the two only gets the whole budget from it, or all that it has. Draws are the same for"
            " all methods, and larger ones contain smaller ones."
        )
    legend += [better, f"{SAME}: it does not depend on labels."]
    heads = [f"all {count(size)}" if size == study.available else count(size) for size in study.sizes]
    return Grid(
        tuple(map(plain, facts)),
        (Column("method", is_left=True), *(Column(head, is_metric=True) for head in heads)),
        tuple(rows), tuple(legend), curves.notes if is_first else (), verdict(curves) if is_first else (),
    )  # fmt: skip


def _fewer(curves: LabelCurves, method: str) -> tuple[str, ...]:
    """Footnote of a method that learned from fewer labels than the largest number asked for."""
    own = told_of(curves, method)
    most = max(own.values(), default=0)
    if not 0 < most < max(own, default=0):
        return ()
    return (f"is told {count(most)} labels at most, all that there are of the split that it learns from",)


def basis(curves: LabelCurves) -> str:
    """Sentence on what the numbers rest on."""
    study, seeds = curves.study, curves.study.seeds
    return (
        f"Preset {study.preset}, {several(len(seeds), 'draw')} of labels ({seeds_text(seeds)}), {curves.n:,} questions"
        f" ({percent(curves.accuracy)} % right), {study.available:,} labels to be told; {study.forward_tokens:,} tokens"
        " were read for it."
    )


# --- crossings --------------------------------------------------------------------------------------------------------


def _crossings(curves: LabelCurves, metric: str) -> Grid:
    """Rows are untrained methods, columns trained ones."""
    study = curves.study
    found = {(c.method, c.untrained): c for c in curves.crossings if c.metric == metric}
    trained, rows = sorted(study.trained), []
    for other in (name for name in methods_of(curves) if name not in study.trained):
        cells = [Cell(plain(other))]
        for name in trained:
            crossing = found.get((name, other))
            is_passing = crossing is not None and crossing.better_from is None and bool(crossing.better_at)
            text = "none" if crossing is None else bracket(crossing, told_of(curves, name))
            cells.append(Cell(text, mark=PASSING * is_passing))
        rows.append(GridRow(cells))
    what = f"labels at which a trained method overtakes an untrained one, {with_arrow(metric)}"
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
    if any(_fewer(curves, name) for name in trained):
        legend.append("Labels are those that the trained method was told.")
    columns = (Column("untrained", is_left=True), *(Column(plain(name), is_metric=True) for name in trained))
    return Grid((f"{study.model} on {study.task}: {what}",), columns, tuple(rows), tuple(legend))


def bracket(crossing: Crossing, told: Mapping[int, int]) -> str:
    """Numbers of labels between which the curves cross, as far as that is shown, in labels that the method was told.

    >>> told = {20: 20, 50: 50, 100: 80, 200: 80}
    >>> bracket(Crossing("a", "b", "brier", 100, (20, 50), (100, 200)), told)
    '50 to 80'
    >>> bracket(Crossing("a", "b", "brier", 20, (), (20,)), told)
    '≤ 20'
    >>> bracket(Crossing("a", "b", "brier", None, (20,), ()), told)
    '> 20'
    """
    worse = max((told[size] for size in crossing.worse_at), default=None)
    if crossing.better_from is None:
        return EN_DASH if worse is None else f"> {count(worse)}"
    better = count(told[crossing.better_from])
    return f"≤ {better}" if worse is None else f"{count(worse)} to {better}"


# --- label counts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperCount:
    """Answers of a split as the paper counts them."""

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
    """The paper's counts; none where there is no such file.

    Args:
        results: folder of results; where it has no `paper` of its own, that of the checkout is read.

    Raises:
        UserError: the file is not as it must be.
    """

    def paper_count(line: Mapping[str, str]) -> PaperCount:
        right, wrong, total = (int(line[name]) for name in ("correct", "incorrect", "total"))
        if right + wrong != total or min(right, wrong) < 0 or not total:
            raise ValueError(f"got {right} + {wrong} = {total}")
        return PaperCount(line["model"], line["task"], line["split"], right, wrong)

    return tuple(values_of(results, FILE, COLUMNS, paper_count, "counts of right and wrong answers"))


def counts_of(published: Sequence[PaperCount], model: str, split: str) -> PaperCount | None:
    """The paper's count of the same model and split (`task/split`); None where there is none."""
    return next((each for each in published if (each.model, f"{each.task}/{each.split}") == (model, split)), None)


def _counts(curves: LabelCurves, published: Sequence[PaperCount]) -> Grid:
    study = curves.study
    columns = [Column("split", is_left=True), Column("right"), Column("wrong"), Column("right, %")]
    papers = {each.split: counts_of(published, study.model, each.split) for each in study.counts}
    has_paper, rows = any(papers.values()), []
    for each in study.counts:
        texts, paper = [count(each.right), count(each.wrong), percent(each.base_rate)], papers[each.split]
        if has_paper:
            texts += [count(paper.right), count(paper.wrong), percent(paper.base_rate)] if paper else [EN_DASH] * 3
        rows.append(GridRow([Cell(plain(each.split)), *map(Cell, texts)]))
    remark, learned = "", [each for each in published if each.split in {"train", "validation"}]
    if has_paper:
        columns += [Column("right", "paper"), Column("wrong", "paper"), Column("right, %", "paper")]
    elif learned:
        rates = [percent(rate) for rate in sorted(each.base_rate for each in learned)]
        sizes = [count(size) for size in sorted(each.right + each.wrong for each in learned)]
        remark = (
            f"Paper, {len(learned)} training and validation splits of other models and tasks, {sizes[0]} to"
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
