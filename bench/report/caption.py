"""What a reader must know to read a table's numbers, piece by piece: the facts of its caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from bench.records import ResultRow
from bench.report.groups import Group, common_settings
from bench.report.text import count, listed, percent, plain, span


def facts_of(group: Group) -> tuple[str, ...]:
    """Of a table's rows; the first names model and task."""
    return tuple(map(plain, _facts(group)))


def _facts(group: Group) -> Iterable[str]:
    rows, first, common = group.rows, group.rows[0], common_settings(group.rows)
    yield f"{first.model} on {first.task}"
    yield f"preset {first.preset}"
    said = {"train_on", "judge", "judge_model", "judge_url", "answers", *first.deviations}
    yield from (f"{name} {value}" for name, value in sorted(common.items()) if name not in said)
    if first.limit is not None:
        yield f"partial: --limit {first.limit}"
    yield from _facts_on_answers(rows)
    floors = [row.metrics["ece_floor"].mean for row in rows if row.status == "ok" and "ece_floor" in row.metrics]
    if any(floor is not None for floor in floors):
        yield f"ECE of perfectly calibrated confidences {span(floors, percent)} %"
    yield f"judge {listed(row.judge for row in rows if row.judge is not None) or 'none'}"
    yield f"trained on {listed(row.train_on for row in rows if row.train_on is not None) or 'nothing'}"
    deviations = [f"{name}={common[name]}" for name in sorted(first.deviations) if name in common]
    if deviations:
        yield f"deviations {', '.join(deviations)}"
    if group.hidden:
        yield f"not shown: {len(group.hidden)} partial or deviating results"


def _facts_on_answers(rows: Sequence[ResultRow]) -> Iterable[str]:
    """The model's own answers, which are the same for all methods."""
    if any(row.n is not None for row in rows):
        subjects = max(len(row.per_subject) for row in rows)
        where = f" in {subjects} subject{'s' * (subjects > 1)}" if subjects else ""
        yield f"n {span([row.n for row in rows], count)}{where}"
    if any(row.llm_accuracy is not None for row in rows):
        yield f"LLM accuracy {span([row.llm_accuracy for row in rows], percent)} %"
    if any(row.n_unparsed is not None for row in rows):
        unparsed = span([row.n_unparsed for row in rows], count)
        yield f"{unparsed} unparsed and {span([row.n_empty for row in rows], count)} empty answers"
    if any(row.n_undecided for row in rows):
        yield f"{span([row.n_undecided for row in rows], count)} answers without a verdict left out"
    if any(row.n_shots_dropped for row in rows):
        yield f"{span([row.n_shots_dropped for row in rows], count)} exemplars dropped"
    sources = {row.answers_source for row in rows} - {"generate"}
    if sources:
        yield f"answers {listed(sources)}"
    counts: dict[str, set[int]] = defaultdict(set)
    for what, n in ((what, n) for row in rows for what, n in row.counts.items()):
        counts[what].add(n)
    yield from (f"{what}: {span(found, count)}" for what, found in sorted(counts.items()))
