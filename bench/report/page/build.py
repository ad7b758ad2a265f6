"""Tables -> what the page shows, as one JSON-ready dict; pure.

    {
      "preset": "demo",
      "headline": "brier",                                  metric that lines are ordered by
      "count": {"results": 22, "ok": 21, "dirty": 0},
      "metrics": [{"name", "label", "better": 1 | -1 | 0, "percent", "about", "source"}, ...],
      "sets": [{"label": "Paper", "metrics": [index, ...]}, ...],
      "methods": [{"name", "colour", "group": "paper" | "untrained" | "trained", "part": number}, ...],
      "blocks": [{"model", "task", "label", "facts": [...], "subjects": [...], "sizes": [...],
                  "lines": [...],                           see `lines.line_of`
                  "questions": {...} | None,                see `questions.chosen`
                  "pairs": {...} | None,                    see `pairs.of`
                  "textless": bool}, ...],
      "words": {...},                                       what the signs mean, see `legend.for_page`
      "asked": [[text, [option, ...], gold], ...],          texts that blocks point to
      "asked_limit": None | characters per text,
      "disagreements": [10, true, None],                    see `disagreements.Depth`, and the limit of their texts
      "footnotes": [...],                                   number k is at k - 1
      "provenance": [[name, [[value, results that have it], ...]], ...],
    }

Fractions of subjects, bins and questions are integers in ten-thousandths, so that eleven methods on four models and
five benchmarks stay below 5 MB; means have six decimals, and beside them stands the text to show.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.api import UserError
from bench.metrics import METRICS
from bench.report.page import disagreements, pairs, questions
from bench.report.page.lines import Footnotes, line_of, missing_line
from bench.report.tables import legend
from bench.report.tables.caption import limit_of, preset_of
from bench.report.tables.model import HEADLINE, Line, Table, methods_of
from bench.report.text import plain
from bench.results.files import Records
from bench.results.questions import QuestionText
from bench.results.row import ResultRow

_SETS: Mapping[str, Sequence[str]] = {
    "Paper": ("ece", "brier", "acc", "aucpr", "auroc"),
    "Calibration": ("ece", "ece_floor", "ece_debiased", "ece_mass", "smece", "brier", "brier_mcb", "nll"),
    "Discrimination": ("auroc", "aucpr", "brier_dsc", "aurc", "eaurc", "coverage95"),
}
"""Columns that are shown together; one more set holds all metrics, and one before them those that were asked for."""


def payload(
    tables: Sequence[Table],
    records_of: Callable[[ResultRow], Records],
    asked: Callable[[str, int], Mapping[str, QuestionText]],
) -> dict[str, Any]:
    """Everything the page shows.

    Args:
        tables: of one preset.
        records_of: the questions of a result that is ok, in the task's order.
        asked: task and version -> its questions by id; empty where their texts aren't at hand.

    Raises:
        UserError: several presets.
    """
    presets = sorted({table.preset for table in tables})
    if len(presets) > 1:
        raise UserError(f"results have presets {', '.join(presets)}; one page shows one, choose it with --preset")
    methods, rows = methods_of(tables), [row for table in tables for row in table.rows]
    page = _Page(methods, records_of, functools.cache(asked), disagreements.depth_of(tables))
    blocks, parts = [page.block(table) for table in tables], sorted({line.part for line in methods})
    _name_apart(blocks, tables)
    return {
        "preset": presets[0],
        "headline": tables[0].headline if tables else HEADLINE,
        "count": {
            "results": len(rows),
            "ok": sum(row.status == "ok" for row in rows),
            "dirty": sum(map(_is_dirty, rows)),
        },
        "metrics": list(map(_metric, METRICS)),
        "sets": _sets(tables[0].metrics if tables else None),
        "methods": [
            {"name": line.method, "colour": line.style.colour, "group": line.group, "part": parts.index(line.part)}
            for line in methods
        ],
        "blocks": blocks,
        "words": legend.for_page(methods, tables[0].headline if tables else HEADLINE),
        "asked": page.texts.shortened(blocks),
        "asked_limit": page.texts.limit,
        "disagreements": [*page.depth, page.texts.brief_limit],
        "footnotes": page.footnotes.texts,
        "provenance": list(_provenance(rows)),
    }


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass
class _Page:
    """Methods, footnotes and texts, which the blocks of one page share."""

    methods: Sequence[Line]
    records_of: Callable[[ResultRow], Records]
    asked: Callable[[str, int], Mapping[str, QuestionText]]
    depth: disagreements.Depth
    footnotes: Footnotes = field(default_factory=Footnotes)
    texts: questions.Texts = field(default_factory=questions.Texts)

    def block(self, table: Table) -> dict[str, Any]:
        """One model and task, with a line for each method of the page."""
        first, lines = table.rows[0], table.placed
        records = [[self.records_of(row) for row in line.done] for line in lines]
        found = {subject for runs in records for run in runs for subject in run.subject}
        subjects = sorted(found.union(*(row.per_subject for row in table.rows)))
        chosen = questions.chosen(
            first, records, subjects, self.asked(first.task, first.task_version), self.texts,
            disagreements.wanted(table, self.depth),
        )  # fmt: skip
        return {
            "model": table.model,
            "task": table.task,
            "label": "",
            "facts": [fact for fact in table.facts if fact not in _titles(first)],
            "subjects": list(map(plain, subjects)),
            "sizes": [_size_of(table.rows, subject) for subject in subjects],
            "lines": list(self._lines(table, records, subjects)),
            "questions": chosen,
            "pairs": pairs.of(table),
            "textless": chosen is not None and -1 in chosen["asked"],
        }

    def _lines(
        self, table: Table, records: Sequence[Sequence[Records]], subjects: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Lines in the order of the table, and after each part the methods of the page that were not run here."""
        column = {line.key: k for k, line in enumerate(table.placed)}
        index = {line.key.method: i for i, line in enumerate(self.methods)}
        run = {line.key.method for line in table.lines}
        recalibrations = {line.key.recalibration for line in table.lines}
        for part in sorted({line.part for line in self.methods if line.key.recalibration in recalibrations}):
            for line in table.lines:
                if line.part == part:
                    k = column[line.key]
                    place = {"method": index[line.key.method], "column": k}
                    yield {**place, **line_of(line, records[k], subjects, self.footnotes)}
            for i, method in enumerate(self.methods):
                if method.key.method not in run and method.part == part:
                    yield {"method": i, "column": None, **missing_line(self.footnotes)}


def _titles(row: ResultRow) -> tuple[str, ...]:
    """Facts of a caption that the page says elsewhere."""
    return tuple(map(plain, (f"{row.model} on {row.task}", preset_of(row), limit_of(row))))


def _name_apart(blocks: Sequence[dict[str, Any]], tables: Sequence[Table]) -> None:
    """Give blocks of one model and task a label that says how they differ."""
    first = [table.rows[0] for table in tables]
    keys = [(row.model, row.task, row.limit) for row in first]
    for block, row, key in zip(blocks, first, keys, strict=True):
        label = [] if row.limit is None else [f"partial, --limit {row.limit}"]
        if keys.count(key) > 1:
            label.append(f"protocol {row.protocol[:8]}")
        block["label"] = plain(", ".join(label))


def _size_of(rows: Sequence[ResultRow], subject: str) -> int | None:
    sizes = (row.per_subject[subject].get("n") for row in rows if subject in row.per_subject)
    return next((int(size) for size in sizes if size is not None), None)


# --- columns and provenance -------------------------------------------------------------------------------------------


def _metric(name: str) -> dict[str, Any]:
    metric = METRICS[name]
    about = (inspect.getdoc(metric.compute) or "").partition("\n\n")[0]
    better = {True: 1, False: -1, None: 0}[metric.higher_is_better]
    return {
        "name": name,
        "label": metric.label,
        "better": better,
        "percent": metric.is_fraction,
        "about": " ".join(about.replace("`", "").split()),
        "source": metric.reference,
    }


def _sets(chosen: Sequence[str] | None) -> list[dict[str, Any]]:
    names = list(METRICS)
    sets = {**({"Chosen": chosen} if chosen else {}), **_SETS}
    known = {label: [names.index(name) for name in members if name in METRICS] for label, members in sets.items()}
    return [{"label": label, "metrics": members} for label, members in {**known, "All": [*range(len(names))]}.items()]


def _is_dirty(row: ResultRow) -> bool:
    """Whether code with uncommitted changes made it; False where its file, which may hold anything, tells nothing."""
    code = row.provenance.get("code")
    return isinstance(code, Mapping) and bool(code.get("dirty"))


def _provenance(rows: Sequence[ResultRow]) -> Iterator[list[Any]]:
    """Each fact with its values, and in how many results they are; what is unknown everywhere is left out."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        versions = {"schema version": row.schema_version, "task version": {row.task: row.task_version}}
        for name, value in _flat({**versions, "protocol": row.protocol, **row.provenance}):
            found[name][value] += 1
    for name, values in found.items():
        yield [plain(name), [[plain(value), count] for value, count in sorted(values.items())]]


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}: ")
        elif value is not None:
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value)
