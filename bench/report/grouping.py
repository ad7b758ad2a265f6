"""Group result rows into tables, and the rows of a table into lines.

A table has one model, task, preset, limit, protocol, source of answers, number of tuning configurations and corpus that
methods learned on. A line is a method with one set of settings, and has a result row for each seed. Example:
`rows_by_line(rows, styles)[Key("ccps", "")]` has the seeds of `ccps` with the common settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from bench.api import UserError
from bench.api.protocol import Protocol
from bench.report.style import Styles
from bench.report.text import join, plain, setting_text
from bench.results.files import recalibration_of
from bench.results.row import LabelsSeen, ResultRow


class Key(NamedTuple):
    """Key of a line of a table: the method, and the settings in which it differs from other lines."""

    method: str
    variant: str
    """Settings in which this line of a table differs from its other lines, e.g. `ccps.steps=10`; usually empty."""

    @property
    def recalibration(self) -> str:
        """Recalibration of the method, e.g. `isotonic`; empty if there is none.

        Lines that are recalibrated alike form a block of the table.
        """
        return recalibration_of(self.method)

    @property
    def label(self) -> str:
        """Name of the method, followed by the variant in brackets if the variant isn't empty."""
        return plain(f"{self.method} ({self.variant})" if self.variant else self.method)


class Group(NamedTuple):
    """Result rows of one table, and the rows that the table leaves out."""

    rows: Sequence[ResultRow]
    hidden: Sequence[ResultRow]
    """Partial (`--limit`) or deviating (`--set`) rows of the same model and task, which the table leaves out."""


def group_rows(rows: Sequence[ResultRow], *, preset: str | None, deviations: bool, partial: bool) -> list[Group]:
    """Group result rows into tables, sorted by model and task.

    Tuned runs, partial runs, and runs with other answers get tables of their own. So do runs whose overridden constants
    (`--set`) change the protocol, and methods that learned on another corpus (`--train-on`). Methods that learn nothing
    are in the tables of all corpora.

    Args:
        rows: rows from `bench.results.cells.read_all`.
        preset: keeps rows of this preset only; None keeps all.
        deviations: also keeps rows with overridden constants.
        partial: also keeps rows of runs with `--limit`.

    Raises:
        UserError: no row is left, or the rows of a model and task differ in schema, preset or task version. Also if
            rows without overridden constants differ in protocol.
    """
    if not rows:
        raise UserError("there are no results to show; run something first: bench run --method all --model tiny")
    of_preset = [row for row in rows if preset in {None, row.preset}]
    if not of_preset:
        raise UserError(f"no result has preset {preset!r}; there are {join(row.preset for row in rows)}")
    is_shown = [(deviations or not row.deviations) and (partial or row.limit is None) for row in of_preset]
    shown = list(compress(of_preset, is_shown))
    if not shown:
        raise UserError(
            f"all {len(of_preset)} results are partial (--limit) or deviate from their preset (--set, answers given"
            " as text), and tables leave these out; show them with --partial and --deviations, or run the whole task"
        )
    # numbers are shown side by side only if they were made by the same rules
    rules: dict[tuple[str, ...], set[Any]] = defaultdict(set)
    for row in shown:
        for name in ("schema_version", "preset", "task_version"):
            rules[row.model, row.task, name].add(getattr(row, name))
        if not row.deviations:  # deviations may change the protocol
            rules[row.model, row.task, "protocol"].add(row.protocol)
    for (model, task, name), values in rules.items():
        if len(values) > 1:
            remedy = "choose one with --preset" if name == "preset" else "delete the old ones or run them again"
            raise UserError(
                f"results of {plain(model)} on {plain(task)} have {name.replace('_', ' ')}s {join(values)}, which"
                f" don't belong in one table; {remedy}"
            )
    hidden = [row for row, is_in in zip(of_preset, is_shown, strict=True) if not is_in]
    groups: dict[tuple[str, ...], list[ResultRow]] = defaultdict(list)
    for row in shown:
        source = row.answers_source.removeprefix("generate")  # the model's own answers come first
        groups[
            row.model, row.task, row.preset, str(row.limit), row.protocol, source, f"{tuning_budget(row):06}"
        ].append(row)
    return [
        Group(part, [row for row in hidden if (row.model, row.task) == (part[0].model, part[0].task)])
        for _, group in sorted(groups.items())
        for part in _by_corpus(group)
    ]


def _by_corpus(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    corpora = corpora_of(rows)
    return [[row for row in rows if corpus_of(row) == corpus or corpus_of(row) not in corpora] for corpus in corpora]


def corpora_of(rows: Sequence[ResultRow]) -> list[str]:
    """Return the distinct `--train-on` of the rows' runs, sorted; empty for a run without one, which is the default.

    A row without numbers doesn't say whether its method reads labels, and so whether its run had none. It counts only
    if the method learned elsewhere, too; else it stands, as rows that read no label do, in the tables of others.
    """
    learners = {row.method for row in rows if "train_on" in row.config}
    known = [corpus_of(row) for row in rows if row.status == "ok" or row.method in learners]
    return sorted({corpus for corpus in known if corpus is not None}) or [""]


def common_corpus(rows: Sequence[ResultRow]) -> str:
    """Return the `--train-on` that the rows of one table share; empty if their runs had none."""
    return next(filter(None, map(corpus_of, rows)), "")


def corpus_of(row: ResultRow) -> str | None:
    """Return the `--train-on` of a row's run; empty if it had none, None if the row's probabilities needed no label."""
    if "train_on" in row.config:
        return setting_text(row.config["train_on"])
    is_untrained = row.status == "ok" and row.train_on is None and row.labels_seen == LabelsSeen()
    return None if is_untrained and not row.is_order_alone else ""


def rows_by_line(rows: Sequence[ResultRow], styles: Styles) -> dict[Key, list[ResultRow]]:
    """Group the rows of a table by line, i.e. by method and settings; the rows of a line are sorted by seed.

    Lines are in the order in which figures list methods: recalibrated methods come last.

    Args:
        rows: rows of one `Group`.
        styles: styles of methods, in the order of figures.

    Raises:
        UserError: two rows of a line have the same seed.
    """
    common = common_settings(rows)
    lines: dict[Key, list[ResultRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.seed):
        variant = ", ".join(f"{k}={v}" for k, v in sorted(_settings(row).items()) if k not in common)
        lines[Key(row.method, variant)].append(row)
    for key, seeds in lines.items():
        if len({row.seed for row in seeds}) < len(seeds):
            raise UserError(f"two results of {plain(key.method)} have one seed; delete one of the files")
    return dict(sorted(lines.items(), key=lambda item: (styles.place(item[0].method), item[0].variant)))


def tuning_budget(row: ResultRow) -> int:
    """Return how many configurations the row's run tried for each tuned method; 0 without tuning."""
    return 0 if row.tuning is None else row.tuning.n


def ece_bins_of(row: ResultRow) -> int:
    """Return the number of ECE bins with which a row was scored."""
    return int(row.deviations.get("protocol.ece_bins", Protocol().ece_bins))


def common_settings(rows: Sequence[ResultRow]) -> Mapping[str, str]:
    """Return the settings that all lines (methods) of a table share, which the caption states once.

    `train_on` is included if it is the same for all trained methods, `train_limit` if it is for all that read labels.
    """
    settings = [_settings(row) for row in rows]
    common = {name: value for name, value in settings[0].items() if all(other.get(name) == value for other in settings)}
    learned = {other.get("train_on", "") for row, other in zip(rows, settings, strict=True) if row.train_on is not None}
    limits = {
        other.get("train_limit", "")
        for row, other in zip(rows, settings, strict=True)
        if row.train_on is not None or row.labels_seen != LabelsSeen() or "train_limit" in other
    }
    common |= {"train_on": learned.pop()} if len(learned) == 1 else {}
    return common | {"train_limit": limits.pop()} if len(limits) == 1 and "" not in limits else common


def _settings(row: ResultRow) -> dict[str, str]:
    """Return the settings of a run that differ from the defaults, as text by name."""
    return {name: setting_text(value) for name, value in {**row.config, **row.deviations}.items()}
