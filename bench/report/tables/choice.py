"""Select which methods, models, tasks and metrics are shown, and in which order, for tables, page and figures.

Ranks, marks, tests and the verdict always take all methods into account, so a selection can't change them. Example:
`apply_selection(tables, Selection(methods=("ccps",), headline="auroc"))`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from bench import registry
from bench.api import UserError
from bench.api.errors import did_you_mean, fold_name, match_name
from bench.metrics import METRICS
from bench.report.grouping import corpora_of, corpus_of
from bench.report.selection import Selection
from bench.report.tables.model import HEADLINE, Table
from bench.report.text import join, plain
from bench.results.files import base_of
from bench.results.row import ResultRow

ALL = "all"
"""Name that selects all metrics, or all methods."""
OWN = "own"
"""Name of the corpus that a task chooses itself."""


def refuse_unknown_metrics(selection: Selection) -> None:
    """Check the names of a selection's metrics before any file is read.

    Raises:
        UserError: a metric is unknown, or neither high nor low values of the metric to sort by are better.
    """
    for name in selection.metrics:
        refuse_unknown("--metrics", "metric", name, (*METRICS, ALL))
    headline = selection.headline
    if headline is not None:
        sortable = [name for name, metric in METRICS.items() if metric.higher_is_better is not None]
        if headline in METRICS and headline not in sortable:
            raise UserError(f"--sort: neither more nor less of {headline} is better; sort by one of {join(sortable)}")
        refuse_unknown("--sort", "metric", headline, sortable)


def select_rows(rows: Sequence[ResultRow], selection: Selection) -> list[ResultRow]:
    """Return the result rows of the requested models, tasks and corpus; rows that read no label are of each corpus.

    Raises:
        UserError: no row has a requested model, task or corpus, or none has all that was requested.
    """
    chosen: list[tuple[str, ...]] = []
    for option, field, requested in (("--models", "model", selection.models), ("--tasks", "task", selection.tasks)):
        known = {getattr(row, field) for row in rows}
        chosen.append(tuple(match_name(name, known) for name in requested))
        for name in chosen[-1] if rows else ():
            refuse_unknown(option, field, name, known, of="result of ")
    models, tasks = chosen
    selected = [row for row in rows if (not models or row.model in models) and (not tasks or row.task in tasks)]
    if rows and not selected:
        raise UserError(f"no result of {join(models)} on {join(tasks)}; leave out one of --models and --tasks")
    if selection.train_on is None:
        return selected
    corpora = {corpus or OWN: corpus for corpus in corpora_of(selected)}
    name = match_name(selection.train_on, corpora)
    refuse_unknown("--train-on", "method that learned on", name, corpora)
    return [row for row in selected if corpus_of(row) == corpora[name] or corpus_of(row) not in corpora.values()]


def apply_selection(tables: Sequence[Table], selection: Selection) -> list[Table]:
    """Apply a selection of methods, metrics and order to tables; captions say how many methods are hidden.

    Remarks name methods that were requested by name or group and that a table lacks.

    Raises:
        UserError: no table has a requested method or group.
    """
    metrics = tuple(METRICS) if ALL in selection.metrics else tuple(dict.fromkeys(selection.metrics)) or None
    selected = [replace(t.ordered_by(selection.headline or HEADLINE), metrics=metrics) for t in tables]
    if not selection.methods:
        return selected
    # method -> names that select it: itself, all, and its groups; a plugin's group is that of its line
    built_in, names = registry.built_in()[0], dict[str, set[str]]()
    for line in (line for table in tables for line in table.lines):
        base = base_of(line.key.method)
        groups = registry.groups_of(built_in.get(base)) if base in built_in.names() else (line.group,)
        names.setdefault(line.key.method, set()).update((line.key.method, ALL, *groups))
    methods: dict[str, None] = {}
    for name in map(fold_name, selection.methods):
        matching = [method for method, present in names.items() if name in present]
        if not matching and name in registry.GROUPS:
            raise UserError(f"--method: no result of a method of group {name!r}; there are {join(names)}")
        if not matching:
            hint = did_you_mean(name, (*names, *registry.GROUPS))
            every = ", ".join(registry.GROUPS)
            raise UserError(
                f"--method: no result of method {name!r}; there are {join(names)}, and the groups {every}.{hint}"
            )
        methods |= dict.fromkeys(matching)
    for i, table in enumerate(selected):
        present = {line.key.method for line in table.lines}
        shown, total = present & methods.keys(), len(present)
        verb = "is" if len(shown) == 1 else "are"
        fact = f"Shown {verb} {len(shown)} of {total} methods; ranks, marks and the verdict are of all {total}."
        part = table.with_lines({line.key for line in table.lines if line.key.method in shown})
        missing = [table.no_result_of(name) for name in methods if name not in present] * (ALL not in selection.methods)
        facts = (*table.facts, *[fact] * (shown != present))
        selected[i] = replace(part, facts=facts, remarks=(*table.remarks, *missing))
    return selected


def refuse_unknown(option: str, what: str, name: str, known: Collection[str], of: str = "") -> None:
    """Check that the name given to a command's option is among the known names.

    Raises:
        UserError: the name is unknown; the message lists the known names.
    """
    if name not in known:
        there = join(known) if of else ", ".join(known)
        raise UserError(f"{option}: no {of}{what} {plain(name)!r}; there are {there}.{did_you_mean(name, known)}")
