"""Result rows -> one comparison table per model and task, and from there to terminal, Markdown, CSV, LaTeX and JSON.

A line is a method; its cells are macro means ± standard deviations over subjects, or "skipped" / "failed" with a
footnote that says why. Example: `print(render(build(read_all(Path("results"))), "md"))`.
"""

from __future__ import annotations

import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from bench.errors import UserError
from bench.metrics import METRICS
from bench.records import MetricSummary, ResultRow
from bench.report import formats
from bench.report.model import Estimate, Line, Table

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("ece", "brier", "acc", "aucpr", "auroc")
"""Metrics of the table, in the order of the paper's."""
REASON_LENGTH = 300
"""Characters of a reason or a note that are shown."""
LEGEND = "macro mean ± std over subjects in percent, best in bold"


def build(
    rows: Sequence[ResultRow],
    *,
    preset: str | None = None,
    order: Sequence[str] | None = None,
    deviations: bool = False,
    partial: bool = False,
) -> list[Table]:
    """Tables in the order of model and task; partial runs, and runs of another protocol, get tables of their own.

    Runs of a method with different settings are lines of one table, told apart by a footnote.

    Args:
        rows: what `bench.results.read_all` gives.
        preset: shows this preset only.
        order: methods that come first, in this order; the others follow alphabetically.
        deviations: also shows rows with overridden constants.
        partial: also shows rows of runs with `--limit`.

    Raises:
        UserError: nothing to show, or the rows of a model and task differ in schema, preset, task version or protocol.
    """
    if not rows:
        raise UserError("there are no results to show; run something first: bench run --method all --model tiny")
    chosen = [row for row in rows if preset in {None, row.preset}]
    if not chosen:
        raise UserError(f"no result has preset {preset!r}; there are {_listed(row.preset for row in rows)}")
    is_shown = [(deviations or not row.deviations) and (partial or row.limit is None) for row in chosen]
    shown = list(compress(chosen, is_shown))
    if not shown:
        raise UserError(
            f"all {len(chosen)} results are partial (--limit) or deviate from their preset (--set), and tables leave"
            " these out; run the whole task: bench run --method all --model tiny"
        )
    _refuse_mixtures(shown)
    groups: dict[tuple[str, ...], list[ResultRow]] = defaultdict(list)
    for row in shown:
        groups[_group_of(row)].append(row)
    hidden = [row for row, is_in in zip(chosen, is_shown, strict=True) if not is_in]
    return [_table(group, order or (), _hidden_beside(group[0], hidden)) for _, group in sorted(groups.items())]


def render(tables: Sequence[Table], kind: str, *, width: int | None = None) -> str:
    """The tables as text.

    Args:
        tables: from `build`.
        kind: `terminal`, `md`, `csv`, `tex` or `json`.
        width: of a terminal, in columns; that of the real one by default.

    Raises:
        UserError: unknown kind.
    """
    if kind == "terminal":
        return formats.terminal(tables, width)
    writers: Mapping[str, Callable[[Sequence[Table]], str]] = {
        "md": formats.markdown, "csv": formats.comma_separated, "tex": formats.latex, "json": formats.as_json,
    }  # fmt: skip
    if kind not in writers:
        raise UserError(f"unknown table format {kind!r}; expected one of terminal, {', '.join(writers)}")
    return writers[kind](tables)


def print_terminal(tables: Sequence[Table], console: Console) -> None:
    """Print the tables on a rich console."""
    formats.print_terminal(tables, console)


# --- which rows go together -------------------------------------------------------------------------------------------


def _group_of(row: ResultRow) -> tuple[str, ...]:
    return row.model, row.task, row.preset, str(row.limit), row.protocol


def _refuse_mixtures(rows: Sequence[ResultRow]) -> None:
    """A number may stand beside another only if both were made by the same rules."""
    found: dict[tuple[str, ...], set[Any]] = defaultdict(set)
    for row in rows:
        for name in ("schema_version", "preset", "task_version"):
            found[row.model, row.task, name].add(getattr(row, name))
        if not row.deviations:  # which may be deviations from the protocol
            found[row.model, row.task, "protocol"].add(row.protocol)
    for (model, task, name), values in found.items():
        if len(values) > 1:
            way_out = "choose one with --preset" if name == "preset" else "delete the old ones or run them again"
            raise UserError(
                f"results of {plain(model)} on {plain(task)} have {name.replace('_', ' ')}s {_listed(values)}, which"
                f" don't belong in one table; {way_out}"
            )


def _hidden_beside(shown: ResultRow, hidden: Sequence[ResultRow]) -> list[ResultRow]:
    return [row for row in hidden if (row.model, row.task) == (shown.model, shown.task)]


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(sorted({plain(str(value)) for value in values}))


# --- one table --------------------------------------------------------------------------------------------------------


def _table(rows: Sequence[ResultRow], order: Sequence[str], hidden: Sequence[ResultRow]) -> Table:
    common = _common_settings(rows)
    lines_rows: dict[tuple[int, str, str], list[ResultRow]] = defaultdict(list)
    place = {method: i for i, method in enumerate(order)}
    for row in sorted(rows, key=lambda row: row.seed):
        variant = ", ".join(f"{k}={v}" for k, v in sorted(_settings(row).items()) if k not in common)
        lines_rows[place.get(row.method, len(place)), row.method, variant].append(row)
    footnotes: list[str] = []
    lines = [_line(lines_rows[key], key[-1], footnotes) for key in sorted(lines_rows)]
    first = rows[0]
    return Table(
        model=plain(first.model),
        task=plain(first.task),
        preset=plain(first.preset),
        facts=tuple(plain(fact) for fact in _facts(rows, common, hidden)),
        columns=COLUMNS,
        lines=tuple(_with_best(lines)),
        footnotes=tuple(footnotes),
    )


def _settings(row: ResultRow) -> dict[str, str]:
    """Everything in which a run differs from a default one."""
    return {name: _shown(value) for name, value in {**row.config, **row.deviations}.items()}


def _common_settings(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Settings that the caption can say once for all lines.

    `train_on` concerns only rows that learn, so it is common where it is the same for these.
    """
    settings = [_settings(row) for row in rows]
    common = {name: value for name, value in settings[0].items() if all(other.get(name) == value for other in settings)}
    learned = {other.get("train_on", "") for row, other in zip(rows, settings, strict=True) if row.train_on is not None}
    return {**common, "train_on": learned.pop()} if len(learned) == 1 else common


def _line(rows: Sequence[ResultRow], variant: str, footnotes: list[str]) -> Line:
    """The line of one method from its seeds; footnotes are appended."""
    if len({row.seed for row in rows}) < len(rows):
        raise UserError(f"two results of {plain(rows[0].method)} have one seed; delete one of the files")
    done = [row for row in rows if row.status == "ok"]
    notes = dict.fromkeys([*([f"with {variant}"] if variant else []), *(note for row in rows for note in row.notes)])
    reasons = dict.fromkeys(_reason(row, several=len(rows) > 1) for row in rows if row.status != "ok")
    floors = [row.metrics["ece_floor"].mean for row in done if "ece_floor" in row.metrics]
    return Line(
        method=plain(rows[0].method),
        variant=plain(variant),
        status="ok" if done else rows[0].status,
        seeds=tuple(row.seed for row in done),
        runs=len(rows),
        n=next((row.n for row in [*done, *rows] if row.n is not None), None),
        ece_floor=_mean(floors),
        estimates={name: _estimate(done, name, footnotes) for name in COLUMNS} if done else {},
        reasons=tuple(_number(text, footnotes) for text in reasons),
        notes=tuple(_number(text, footnotes) for text in notes),
    )


def _reason(row: ResultRow, *, several: bool) -> str:
    seed = f" (seed {row.seed})" if several else ""
    return f"{row.status}{seed}: {row.reason or 'no reason given'}"


def _estimate(rows: Sequence[ResultRow], name: str, footnotes: list[str]) -> Estimate:
    """The mean over seeds of one metric."""
    summaries = [row.metrics.get(name, MetricSummary(None, None, None, 0)) for row in rows]
    left_out = max(summary.n_undefined for summary in summaries)
    mean = _mean(summary.mean for summary in summaries)
    notes = []
    if mean is None:
        notes.append(f"{METRICS[name].label} is undefined in every subject")
    elif left_out:
        total = len(rows[0].per_subject)
        notes.append(f"{METRICS[name].label} leaves out {left_out} of {total} subjects, where it is undefined")
    std = _mean(summary.std for summary in summaries)
    return Estimate(mean, std, notes=tuple(_number(text, footnotes) for text in notes))


def _with_best(lines: Sequence[Line]) -> list[Line]:
    """Mark the best means of each column; means that look equal at the precision shown are equally good."""
    marked = [dict(line.estimates) for line in lines]
    for name in COLUMNS:
        means = {
            i: formats.rounded(line.estimates[name].mean)
            for i, line in enumerate(lines)
            if name in line.estimates and line.estimates[name].mean is not None
        }
        if len(means) > 1:
            best = (max if METRICS[name].higher_is_better else min)(means.values())
            for i in (i for i, mean in means.items() if mean == best):
                marked[i][name] = replace(marked[i][name], best=True)
    return [replace(line, estimates=estimates) for line, estimates in zip(lines, marked, strict=True)]


def _number(text: str, footnotes: list[str]) -> int:
    """Number of a footnote, the same for the same text."""
    text = plain(text)
    if text not in footnotes:
        footnotes.append(text)
    return footnotes.index(text) + 1


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --- the caption ------------------------------------------------------------------------------------------------------


def _facts(rows: Sequence[ResultRow], common: Mapping[str, str], hidden: Sequence[ResultRow]) -> Iterable[str]:
    """What a reader must know to read the numbers, piece by piece."""
    first = rows[0]
    yield f"{first.model} on {first.task}"
    yield f"preset {first.preset}"
    said = {"train_on", "judge", "judge_model", "judge_url", "answers", *first.deviations}
    yield from (f"{name} {value}" for name, value in sorted(common.items()) if name not in said)
    if first.limit is not None:
        yield f"partial: --limit {first.limit}"
    yield from _facts_on_answers(rows)
    floors = [row.metrics["ece_floor"].mean for row in rows if row.status == "ok" and "ece_floor" in row.metrics]
    if any(floor is not None for floor in floors):
        yield f"ECE of perfectly calibrated confidences {_span(floors, formats.percent)} %"
    yield f"judge {_listed(row.judge for row in rows if row.judge is not None) or 'none'}"
    yield f"trained on {_listed(row.train_on for row in rows if row.train_on is not None) or 'nothing'}"
    deviations = [f"{name}={common[name]}" for name in sorted(first.deviations) if name in common]
    if deviations:
        yield f"deviations {', '.join(deviations)}"
    if hidden:
        yield f"not shown: {len(hidden)} partial or deviating results"
    yield LEGEND


def _facts_on_answers(rows: Sequence[ResultRow]) -> Iterable[str]:
    """The model's own answers, which are the same for all methods."""
    if any(row.n is not None for row in rows):
        subjects = max(len(row.per_subject) for row in rows)
        where = f" in {subjects} subject{'s' * (subjects > 1)}" if subjects else ""
        yield f"n {_span([row.n for row in rows], _count)}{where}"
    if any(row.llm_accuracy is not None for row in rows):
        yield f"LLM accuracy {_span([row.llm_accuracy for row in rows], formats.percent)} %"
    if any(row.n_unparsed is not None for row in rows):
        unparsed = _span([row.n_unparsed for row in rows], _count)
        yield f"{unparsed} unparsed and {_span([row.n_empty for row in rows], _count)} empty answers"
    if any(row.n_undecided for row in rows):
        yield f"{_span([row.n_undecided for row in rows], _count)} answers without a verdict left out"
    if any(row.n_shots_dropped for row in rows):
        yield f"{_span([row.n_shots_dropped for row in rows], _count)} exemplars dropped"
    sources = {row.answers_source for row in rows} - {"generate"}
    if sources:
        yield f"answers {_listed(sources)}"
    counts: dict[str, set[int]] = defaultdict(set)
    for what, n in ((what, n) for row in rows for what, n in row.counts.items()):
        counts[what].add(n)
    yield from (f"{what}: {_span(found, _count)}" for what, found in sorted(counts.items()))


def _span(values: Iterable[float | None], text: Callable[[float], str]) -> str:
    """One value, or the smallest and the largest; unknown ones are passed over."""
    known = [value for value in values if value is not None]
    if not known:
        return "unknown"
    ends = dict.fromkeys((text(min(known)), text(max(known))))
    return formats.EN_DASH.join(ends)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def plain(text: str) -> str:
    """One line of printable text: control and direction-changing characters become spaces, long text is cut."""
    printable = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in text)
    words = " ".join(printable.split())
    return words if len(words) <= REASON_LENGTH else words[: REASON_LENGTH - 1] + "…"
