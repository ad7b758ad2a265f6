"""Build the payload: all data that the HTML page shows of tables of results, as one JSON-ready dict.

    {
      "preset": "demo",                                     empty if several, or in an audit ("audit": true)
      "count": {"results": 22, "ok": 21, "dirty": 0},
      "metrics": [{"name", "label", "note", "better": 1 | -1 | 0, "judged_by", "percent", "about", "source"}, ...],
      "sets": [{"label": "Main", "metrics": [index, ...]}, ...],
      "methods": [{"name", "colour", "group": "paper" | "untrained" | "trained", "part": index,
        "needs": what it needs of a model for an answer, ["logits" | "states" | "samples" | "adapter", ...]}, ...],
      "headline": "brier",                                  metric that methods are ordered and ranked by
      "headlines": {metric: sentences, ...},                what leaders and ranks by each metric mean
      "parts": [name of each recalibration, ...], "costs": [{"key", "label", "title"}, ...],
      "verdict": {...},                                     see `verdict.verdict_data`
      "blocks": [{"model", "task", "label", "facts": [...], "caption", "subjects": [...], "sizes": [...],
                  "lines": [...],                           see `lines.line_data`; `csv` is an index in "csv"
                  "headlines": {metric: {"order": [index of line, ...], "leads": [index of line, ...]}},
                  "questions": {...} | None,                see `questions.select_questions`
                  "pairs": {...} | None,                    see `pairs.pair_data`
                  "textless": bool}, ...],
      "verdicts": {...},                                    words for the verdicts in "pairs"
      "words": {...},                                       what numbers and signs mean, see `legend.page_legend`
      "asked": [[text, [option, ...], gold], ...],          texts of questions, which blocks refer to by index
      "asked_limit": None | characters per text,
      "disagreements": [10, true, None],                    fields of `disagreements.Depth`, and characters per text
      "csv": [row, ...],                                    lines of `bench table --format csv`, the heading first
      "differences": [markup of each block, ...],           see `pairs.differences_table`; not passed to scripts
      "transfer": markup of the section on distribution shift, see `transfer`; not passed to scripts
      "footnotes": [...],                                   footnote k is at index k - 1
      "provenance": [[name, [[value, number of results that have it], ...]], ...],
    }

A block is the table of one model and task. A line is one method over its seeds; lines are ordered by recalibration
("parts"), then by the headline metric. Confidences are integers in ten-thousandths, which keeps the page small. Means
have six decimals; the text that the page shows for a mean is stored beside it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import registry
from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.page import disagreements, pairs, questions, transfer, verdict
from bench.report.page.lines import line_data, missing_line
from bench.report.page.static_table import block_name
from bench.report.tables import legend
from bench.report.tables.caption import distinguishing_labels, limit_sentence, preset_sentence, title_of
from bench.report.tables.export import csv_records
from bench.report.tables.formats import csv_text
from bench.report.tables.model import COLUMNS, HEADLINE, Line, Table, one_line_per_method
from bench.report.text import Footnotes, plain
from bench.results.files import base_of
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import ResultRow

_MANY = 8
"""Number of blocks (tables of one model and task) above which the page shows fewer questions of each."""
_COSTS: Mapping[str, tuple[str, str]] = {
    "n": ("n", "Questions"),
    "seeds": ("Seeds", "Runs that are ok, of all"),
    "labels": ("Labels", "Answers that the method was told to be right or wrong, in training and validation"),
    "tokens": ("Tokens read", "Token positions fed to the model for this method alone, adapter training included"),
    "generated": ("Generated", "Tokens that the model writes for this method alone"),
    "parameters": ("Parameters", "Trained parameters"),
    "group": ("Group", "A method of the paper, another that does not learn, or another that does"),
    "seconds": ("Seconds", "Fitting and predicting, without reading the model"),
}
"""Columns of costs of the page's table: name -> heading, and the text that explains the heading."""
_NOTES: Mapping[str, str] = {
    "ece": "calibration error / by chance",
    "rmsce": "calibration error, without chance",
    "brier": "squared error",
    "acc": "confidence above 50 % agrees; not the accuracy of the model",
    "aucpr": "right answers found, precisely",
    "auroc": "right before wrong answers",
    "nll": "log loss",
}
"""Metric -> its meaning in a few words, shown below the heading of its column."""
_SETS: Mapping[str, Sequence[str]] = {
    "Main": COLUMNS,
    "Calibration": ("ece", "ece_floor", "rmsce", "ece_mass", "smece", "brier", "brier_mcb", "nll"),
    "Discrimination": (
        "auroc",
        "aucpr",
        "brier_dsc",
        *(name for name, metric in METRICS.items() if metric.is_rank_based and name not in {"auroc", "aucpr"}),
    ),
}
"""Name -> metrics whose columns are shown together. The page puts `Chosen`, the requested metrics, before these sets,
and `All` after them."""


def payload(
    tables: Sequence[Table],
    records_of: Callable[[ResultRow], QuestionRecords],
    texts_of: Callable[[str, int], Mapping[str, QuestionText]],
    shift: transfer.Shift | None = None,
) -> dict[str, Any]:
    """Return the data of the page as one JSON-ready dict; the docstring of this module lists its keys.

    Args:
        tables: tables of results, one for each model and task.
        records_of: returns the answers and confidences of a result that is ok, in the task's order of questions.
        texts_of: called with a task's name and version; returns question texts by id, none if they are not stored.
        shift: transfer matrices (methods trained on one task, tested on another) of the tables' models, if any.
    """
    presets = {table.preset for table in tables}
    methods, rows = one_line_per_method(tables), [row for table in tables for row in table.rows]
    standings = [line.standing for table in tables for line in table.lines if line.standing]
    first, average = tables[0].headline if tables else HEADLINE, tables[0].average if tables else "questions"
    is_audit = bool(tables) and tables[0].is_audit
    headlines = {first: legend.page_legend(methods, average, first, is_audit=is_audit)}
    for name in METRICS:
        if name != first and any(name in standing.ranks for standing in standings):
            headlines[name] = legend.page_legend(methods, average, name, is_audit=is_audit)
    texts = questions.QuestionTexts(questions.FEW if len(tables) > _MANY else questions.EACH)
    page = _Page(
        methods, records_of, functools.cache(texts_of), list(headlines), texts, disagreements.fit_depth(tables),
        plain(preset_sentence(rows[0])) if len(presets) == 1 else "",
    )  # fmt: skip
    labels = distinguishing_labels([table.all_rows for table in tables])
    blocks = [page.block(table, label) for table, label in zip(tables, labels, strict=True)]
    names = list(map(block_name, blocks))
    parts = sorted({line.key.recalibration for line in methods})
    costs = [line["costs"] for block in blocks for line in block["lines"] if line["status"] == "ok"]
    values = {name: {line.get(name) for line in costs} for name in _COSTS}  # shown only if they differ: n, seeds, group
    codes = [row.provenance.get("code") for row in rows]  # provenance comes from a file, which may hold anything
    return {
        "preset": "" if is_audit or len(presets) > 1 else presets.pop(),
        "audit": is_audit,
        "count": {
            "results": len(rows),
            "ok": sum(row.status == "ok" for row in rows),
            "dirty": sum(isinstance(code, Mapping) and bool(code.get("dirty")) for code in codes),
        },
        "metrics": list(map(_metric, METRICS)),
        "sets": _column_sets(tables[0].metrics if tables else None),
        "methods": [
            {
                "name": line.method,
                "colour": line.style.colour,
                "group": line.group,
                "part": parts.index(line.key.recalibration),
                "needs": registry.resources_of(base_of(line.key.method)),
            }
            for line in methods
        ],
        "headline": first,
        "headlines": {name: f"{words['leads']} {words['ranks']}" for name, words in headlines.items()},
        "parts": [f"Recalibrated by {plain(kind)}" if kind else "Not recalibrated" for kind in parts],
        "costs": [
            {"key": name, "label": label, "title": title}
            for name, (label, title) in _COSTS.items()
            if not (is_audit and name in {"labels", "group"})
            and (len(values[name]) > 1 if name in {"n", "seeds", "group"} else values[name] - {None})
        ],
        "verdict": verdict.verdict_data(tables, names) if tables else None,
        "blocks": blocks,
        "verdicts": pairs.VERDICTS,
        "words": headlines[first],
        "asked": texts.shortened(blocks),
        "asked_limit": texts.limit,
        "csv": csv_text(csv_records(tables)).splitlines(),
        "differences": [pairs.differences_table(table, name) for table, name in zip(tables, names, strict=True)],
        "transfer": transfer.section(shift) if shift else "",
        "disagreements": [*page.depth, texts.brief_limit],
        "footnotes": page.footnotes.texts,
        "provenance": list(_provenance(rows)),
    }


@dataclass
class _Page:
    """Builds the blocks (one for each table) of a page; all blocks share methods, footnotes and question texts."""

    methods: Sequence[Line]
    records_of: Callable[[ResultRow], QuestionRecords]
    texts_of: Callable[[str, int], Mapping[str, QuestionText]]
    headlines: Sequence[str]
    texts: questions.QuestionTexts
    depth: disagreements.Depth
    preset: str
    """Sentence on the preset if all tables have the same, as the page's head names it; else empty."""
    footnotes: Footnotes = field(default_factory=Footnotes)
    rows: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Counter of the payload's CSV lines: index of the next method's line. It starts at 1, as line 0 is the heading."""

    def block(self, table: Table, label: str) -> dict[str, Any]:
        """Return the page's data of one table, with a line for each method that the page shows.

        Args:
            table: the table.
            label: setting that distinguishes the table from other tables of its model and task. A limit and a tuning
                budget are named even if there is no other table; without any setting to name, it is empty.
        """
        first, column = table.rows[0], {line.key: k for k, line in enumerate(table.ordered_lines)}
        answers = [[self.records_of(row) for row in line.ok_rows] for line in table.ordered_lines]
        present = {subject for runs in answers for run in runs for subject in run.subject}
        subjects = sorted(present.union(*(row.per_subject for row in table.rows)))
        per_subject = [
            {s: n for s, values in row.per_subject.items() if (n := values.get("n")) is not None} for row in table.rows
        ]
        main = (
            k
            for k, line in enumerate(table.ordered_lines)
            if line.ok_rows and line.standing and not line.standing.labels
        )
        shown = questions.select_questions(
            first, answers, subjects, self.texts_of(first.task, first.task_version), self.texts,
            disputed=disagreements.select_pairs(table, self.depth), each_way=self.depth.each, base=next(main, None),
        )  # fmt: skip
        ordered, lines = self._ordered(table), []
        index = {line.key.method: i for i, line in enumerate(self.methods)}
        for line in ordered:
            if isinstance(line, int):
                lines.append({"method": line, "column": None, **missing_line(self.footnotes)})
            else:
                position = {"method": index[line.key.method], "column": column[line.key], "csv": next(self.rows)}
                lines.append({**position, **line_data(line, subjects, self.footnotes)})
        places = {line if isinstance(line, int) else line.key: i for i, line in enumerate(ordered)}
        headlines = {}
        for name in self.headlines:
            order = (line if isinstance(line, int) else line.key for line in self._ordered(table.ordered_by(name)))
            leads = (line.key for line in table.leaders(name) if line.key in places)
            headlines[name] = {"order": [places[key] for key in order], "leads": [places[key] for key in leads]}
        titles = {*map(plain, (title_of(table.all_rows), limit_sentence(first))), self.preset}
        return {
            "model": table.model,
            "task": table.task,
            "label": label,
            "facts": [fact for fact in table.facts if fact not in titles],  # the page says them elsewhere
            "caption": table.caption,
            "subjects": list(map(plain, subjects)),
            "sizes": [next((int(n[subject]) for n in per_subject if subject in n), None) for subject in subjects],
            "lines": lines,
            "headlines": headlines,
            "questions": shown,
            "pairs": pairs.pair_data(table),
            "textless": shown is not None and -1 in shown["asked"],
        }

    def _ordered(self, table: Table) -> list[Line | int]:
        """Return the table's lines in order, and with each recalibration the methods without a result in this table.

        A method without a result is given as its index in the page's list of methods, after the lines of its part.
        """
        methods_run = {line.key.method for line in table.lines}
        recalibrations = {line.key.recalibration for line in table.lines}
        ordered: list[Line | int] = []
        for part in sorted(
            {line.key.recalibration for line in self.methods if line.key.recalibration in recalibrations}
        ):
            ordered += [line for line in table.lines if line.key.recalibration == part]
            ordered += [
                i for i, m in enumerate(self.methods) if m.key.method not in methods_run and m.key.recalibration == part
            ]
        return ordered


# --- columns and provenance -------------------------------------------------------------------------------------------


def _metric(name: str) -> dict[str, Any]:
    metric = METRICS[name]
    about = (inspect.getdoc(metric.compute) or "").partition("\n\n")[0]
    better = {True: 1, False: -1, None: 0}[metric.higher_is_better]
    return {
        "name": name,
        "label": metric.label,
        "note": _NOTES.get(name, ""),
        "better": better,
        "judged_by": ranked_by(name),
        "percent": metric.is_fraction,
        "about": " ".join(about.replace("`", "").split()),
        "source": metric.reference,
    }


def _column_sets(requested: Sequence[str] | None) -> list[dict[str, Any]]:
    names = list(METRICS)
    sets = {**({"Chosen": requested} if requested else {}), **_SETS}
    known = {label: [names.index(name) for name in members if name in METRICS] for label, members in sets.items()}
    return [{"label": label, "metrics": members} for label, members in {**known, "All": [*range(len(names))]}.items()]


def _provenance(rows: Sequence[ResultRow]) -> Iterator[list[Any]]:
    """Yield each fact about how results were made, e.g. a library's version: its name, and each value with a count.

    The count is the number of results that have this value.
    """
    facts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        versions = {"schema version": row.schema_version, "task version": {row.task: row.task_version}}
        for name, value in _flatten({**versions, "protocol": row.protocol, **row.provenance}):
            facts[name][value] += 1
    for name, values in facts.items():
        yield [plain(name), [[plain(value), count] for value, count in sorted(values.items())]]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}: ")
        elif value is not None:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)
