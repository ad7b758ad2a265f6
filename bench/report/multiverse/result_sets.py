"""Results -> worlds: what was measured under one setting with one seed, the same questions for all methods.

A setting is what a run fixes for all methods alike. Results that deviate otherwise (`--set METHOD.FIELD`, other
training questions for some) belong to no setting and are counted. Example: `worlds(found, names, at, Exclusions())[0]`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench.api import FloatArray, UserError
from bench.metrics.answers import ranked
from bench.report.multiverse.definitions import NONE, RECALIBRATION, SEED
from bench.report.text import listed, plain, setting
from bench.results.files import base_of, path_of, place_of, read_records, recalibration_of
from bench.results.records import Records
from bench.results.row import ResultRow

_ALIKE = frozenset({"tune", "judge", "judge_model", "judge_url", "answers", "token_budget"})
"""Settings in `ResultRow.config` that have a dimension, or that change no number on purpose."""
_PROTOCOL = "protocol."
LETTERS, OF_PRESET, USUAL_ANSWERS = "option letters", "of the preset", "generate"
USUAL_JUDGES = ("match", LETTERS)


class Setting(NamedTuple):
    """Dimensions that a run fixes for all of its methods; the names are those of the dimensions."""

    preset: str
    tuning: str
    answers: str
    judge: str
    protocol: str


At = tuple[Setting, str, int]
"""Setting, recalibration and seed."""


def setting_of(row: ResultRow) -> Setting:
    """The setting of a result."""
    rules = {name: value for name, value in row.deviations.items() if name.startswith(_PROTOCOL)}
    return Setting(
        plain(row.preset),
        f"{row.config['tune']} configurations" if "tune" in row.config else NONE,
        plain(row.answers_source),
        plain(row.judge or LETTERS),
        ", ".join(f"{name.removeprefix(_PROTOCOL)}={plain(setting(value))}" for name, value in sorted(rules.items()))
        or OF_PRESET,
    )


@dataclass(frozen=True, eq=False)
class ResultSet:
    """Results under one setting, with one seed and one recalibration, that rest on the same answers and labels."""

    setting: Setting
    recalibration: str
    seed: int
    records: Mapping[str, Records]
    """Methods without their recalibration -> their questions, in the order of ids."""

    @property
    def any(self) -> Records:
        """Questions, answers and labels, which are the same for all methods."""
        return next(iter(self.records.values()))

    @property
    def choices(self) -> dict[str, str]:
        """Dimension -> option."""
        return {**self.setting._asdict(), RECALIBRATION: self.recalibration, SEED: str(self.seed)}


@dataclass
class Exclusions:
    """Account of what has no number, in the order in which it was found."""

    counts: Counter[str] = field(default_factory=Counter)
    """Sentence -> results."""
    missing: list[str] = field(default_factory=list)
    """Sentences on combinations without results of some methods."""


# --- which results ----------------------------------------------------------------------------------------------------


def admitted(rows: Sequence[ResultRow], gaps: Exclusions) -> list[ResultRow]:
    """Results that belong to a setting: ok, of whole tasks, and with no settings of their own.

    Args:
        rows: of one model and task; of a result that is there twice, only the first counts.
        gaps: told of the others.

    Raises:
        UserError: two results of one cell have different numbers.
    """
    names = {name for row in rows for name in row.config} - _ALIKE
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row, name in product(rows, names):
        told = setting(row.config.get(name))
        values[name, row.method].add(told)
        if name == "train_on" and row.train_on is not None:
            values[name, ""].add(told)
    # settings without a dimension in which results of one method differ, or those that learn differ from each other;
    # one that all results of each method have, e.g. --dtype, is no choice here
    odd = {name for (name, _), several in values.items() if len(several) > 1}
    lines = [(setting_of(row), base_of(row.method)) for row in rows]
    short = {line for line, row in zip(lines, rows, strict=True) if row.training and row.training.is_cut_short}
    seen: dict[tuple[object, ...], ResultRow] = {}
    for (at, base), row in zip(lines, rows, strict=True):
        own = [name for name in row.deviations if not name.startswith(_PROTOCOL)]
        own += [name for name in row.config if name in odd and name not in row.deviations]
        reason = ""
        if row.status != "ok":
            reason = f"{plain(base)} was {row.status} with {_words_of(at)}"
        elif row.limit is not None:
            reason = "runs with --limit"
        elif own:
            reason = f"{plain(base)} with settings of its own ({listed(own)})"
        elif row.is_order_alone:
            reason = f"{plain(base)} gives scores that nothing scales, so it has no confidence to measure"
        elif (at, base) in short:  # as in tables, where one such seed takes the line's rank
            reason = f"training of {plain(row.method)} was cut short with {_words_of(at)}"
        if reason:
            gaps.counts[f"Left out: {reason}"] += 1
            continue
        first = seen.setdefault((at, row.method, row.seed), row)
        if first.records_digest != row.records_digest:
            raise UserError(
                f"{plain(row.method)} on {plain(row.task)}, seed {row.seed}: two results of one setting differ,"
                f" {path_of(first, Path())} and {path_of(row, Path())}; move one of them to another folder"
            )
    return list(seen.values())


def reference_of(rows: Sequence[ResultRow]) -> Setting:
    """The setting of the table: untuned, the model's own answers, the protocol of the preset; else the fullest.

    Args:
        rows: admitted results of the table's preset, at least one.
    """
    sizes = Counter(setting_of(row) for row in rows if not recalibration_of(row.method))
    if not sizes:
        raise UserError(
            "All results are recalibrated; the table needs them as they are: run them without --recalibrate"
        )
    return min(
        sizes,
        key=lambda at: (at.tuning != NONE, at.answers != USUAL_ANSWERS, at.protocol != OF_PRESET, -sizes[at], at),
    )


# --- their records ----------------------------------------------------------------------------------------------------


def worlds(
    rows: Sequence[ResultRow], folder: Path, methods: Sequence[str], reference: Setting, gaps: Exclusions
) -> list[ResultSet]:
    """Worlds in which at least two methods rest on the same answers, those of the table first.

    Args:
        rows: admitted results.
        folder: of results.
        methods: that are compared, without recalibration.
        reference: setting of the table.
        gaps: told of methods that are missing, and of settings with other questions.

    Raises:
        UserError: a file is not as it must be, or no two methods rest on the same answers.
    """
    cells: dict[At, dict[str, ResultRow]] = defaultdict(dict)
    for row in rows:
        at = setting_of(row), recalibration_of(row.method) or NONE, row.seed
        cells[at][base_of(row.method)] = row
    made: list[ResultSet] = []
    for at in sorted(cells, key=lambda at: (at[0] != reference, at[1] != NONE, at)):
        own = {name: cells[at][name] for name in methods if name in cells[at]}
        records = {name: read_records(place_of(row, folder)).by_id() for name, row in own.items()}
        alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for name, each in records.items():
            alike[tuple(each.id), tuple(each.subject), each.correct.tobytes()].append(name)
        most = max(alike.values(), key=len, default=[])
        for name in (name for name in records if name not in most):
            gaps.counts[f"Left out: {name} rests on other answers or labels than most others: {_words(at)}"] += 1
        if len(records) == 1:
            gaps.counts[f"Left out: {most[0]} alone has a result with {_words(at)}"] += 1
        if len(most) <= 1:
            continue
        world = ResultSet(*at, {name: records[name] for name in most})
        if made and world.any.id != made[0].any.id:
            gaps.counts[f"Left out: {_words(at)} asks other questions than the table"] += 1
            continue
        lacking = [name for name in methods if name not in own]
        if lacking:
            gaps.missing.append(f"No result with {_words(at)}: {listed(lacking)}.")
        made.append(world)
    if all(len(own.keys() & set(methods)) < 2 for at, own in cells.items() if at[0] == reference):  # noqa: PLR2004
        raise UserError(
            f"No seed has results of two methods of the table ({listed(methods)}), so none can be compared in a"
            " universe; run them with the same --seed"
        )
    if not made or made[0].setting != reference:
        raise UserError("No two methods of the table rest on the same answers and labels, so none can be compared")
    return made


def order_of(records: Records) -> FloatArray:
    """Values (n,) that metrics of order are of."""
    return records.confidence if records.score is None else ranked(records.score)


def _words(at: At) -> str:
    own, recalibration, seed = at
    also = "" if recalibration == NONE else f", recalibration {recalibration}"
    return f"{_words_of(own)}, seed {seed}{also}"


def _words_of(own: Setting) -> str:
    """A setting in words, without what is usual."""
    parts = [f"preset {own.preset}"]
    parts += [f"tuning by {own.tuning}"] if own.tuning != NONE else []
    parts += [f"answers {own.answers}"] if own.answers != USUAL_ANSWERS else []
    parts += [f"judge {own.judge}"] if own.judge not in USUAL_JUDGES else []
    parts += [own.protocol] if own.protocol != OF_PRESET else []
    return ", ".join(parts)
