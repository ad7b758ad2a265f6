"""Group results into sets that hold results of several methods and agree in everything else.

The results of a set have the same setting, seed, recalibration and questions. A setting is what a run fixes for all its
methods, e.g. preset and judge. Results in which a single method deviates, e.g. by `--set METHOD.FIELD` or by training
questions of its own, belong to no setting; they are left out and counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench.api import FloatArray, UserError
from bench.metrics.validation import normalised_ranks
from bench.report.multiverse.definitions import NONE, RECALIBRATION, SEED
from bench.report.text import join, plain, setting_text
from bench.results.files import base_of, path_of, recalibration_of, records_of
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, ResultRow

_NEUTRAL_CONFIG = frozenset({
    "tune", "judge", "judge_model", "judge_url", "answers", "answer_ids", "shots", "think_budget", "thinking",
    "enable_thinking", "token_budget",
})  # fmt: skip
"""Entries of `ResultRow.config` and `deviations` that never exclude a result: another field, such as the source of the
answers, already states them, or they change no metric."""
_OF_METHOD, _OF_LABELS = {"nli", "similarity", "training_budget"}, {"train_on", "train_limit"}
"""Options that a run gives to some methods alone, and options that hold for all methods which read labels. Other
options hold for all methods of a run."""
_PROTOCOL = "protocol."
LETTERS, OF_PRESET, USUAL_ANSWERS = "option letters", "of the preset", "generate"
USUAL_JUDGES = ("match", LETTERS)


class RunSettings(NamedTuple):
    """Options that a run fixes for all of its methods; the name of each field is the name of an analysis choice."""

    preset: str
    tuning: str
    answers: str
    judge: str
    protocol: str


SetKey = tuple[RunSettings, str, int]
"""RunSettings (what a run fixes for all methods), recalibration and seed, which identify a set of results."""


def setting_of(row: ResultRow) -> RunSettings:
    """Return the setting of a result: preset, tuning, answers, judge and protocol."""
    rules = {name: value for name, value in row.deviations.items() if name.startswith(_PROTOCOL)}
    return RunSettings(
        plain(row.preset),
        f"{row.config['tune']} configurations" if "tune" in row.config else NONE,
        plain(row.answers_source),
        plain(row.judge or LETTERS),
        ", ".join(
            f"{name.removeprefix(_PROTOCOL)}={plain(setting_text(value))}" for name, value in sorted(rules.items())
        )
        or OF_PRESET,
    )


@dataclass(frozen=True, eq=False)
class ResultSet:
    """Results of several methods with one setting, seed and recalibration, on the same answers and labels.

    A setting is what a run fixes for all its methods, e.g. preset and judge.
    """

    setting: RunSettings
    recalibration: str
    seed: int
    records: Mapping[str, QuestionRecords]
    """Method, named without its recalibration -> answers and confidences of its result, sorted by question id."""

    @property
    def first(self) -> QuestionRecords:
        """Answers and confidences of the first method; questions, answers and labels are the same for all methods."""
        return next(iter(self.records.values()))

    @property
    def choices(self) -> dict[str, str]:
        """Analysis choice (e.g. "judge") -> option that all results of this set have."""
        return {**self.setting._asdict(), RECALIBRATION: self.recalibration, SEED: str(self.seed)}


@dataclass
class Exclusions:
    """Sentences on results that are left out or missing, in the order in which they were found."""

    counts: Counter[str] = field(default_factory=Counter)
    """Sentence that says what is left out and why -> number of such results."""
    missing: list[str] = field(default_factory=list)
    """Sentences on settings and seeds for which some methods have no result."""


# --- which results ----------------------------------------------------------------------------------------------------


def eligible_rows(rows: Sequence[ResultRow], exclusions: Exclusions) -> list[ResultRow]:
    """Return the results that belong to a setting: status ok, without `--limit`, without overridden fields.

    A setting is what a run fixes for all its methods, e.g. preset and judge. Results without confidences are left out,
    and all results of a method and setting in which a training was cut short.

    Args:
        rows: results of one model and task; of duplicates the first is used.
        exclusions: receives the reasons why results are left out, with their numbers.

    Raises:
        UserError: two results of one setting, method and seed differ.
    """
    names = sorted({name for row in rows for name in row.config.keys() - row.deviations.keys()} - _NEUTRAL_CONFIG)
    methods: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, name in product((row for row in rows if row.status == "ok" and row.limit is None), names):
        methods[_holders(row, name)][setting_text(row.config.get(name))].add(base_of(row.method))
    # an option without a dimension is no choice: the value of most methods stands. In a tie results without the option
    # ("null") stand, or else those of the first value by name.
    usual = {key: max(sorted(of), key=lambda text: (len(of[text]), text == "null")) for key, of in methods.items()}
    lines = [(setting_of(row), base_of(row.method)) for row in rows]
    cut_short = {line for line, row in zip(lines, rows, strict=True) if row.training and row.training.is_cut_short}
    seen: dict[tuple[object, ...], ResultRow] = {}
    for (run_setting, base), row in zip(lines, rows, strict=True):
        overridden = [name for name in row.deviations if not name.startswith(_PROTOCOL) and name not in _NEUTRAL_CONFIG]
        overridden += [k for k in names if (own := setting_text(row.config.get(k))) != usual.get(_holders(row, k), own)]
        reason = ""
        if row.status != "ok":
            reason = f"{plain(base)} was {row.status} with {_describe_setting(run_setting)}"
        elif row.limit is not None:
            reason = "runs with --limit"
        elif overridden:
            reason = f"{plain(base)} with settings of its own ({join(overridden)})"
        elif row.is_order_alone:
            reason = f"{plain(base)} gives scores that nothing scales, so it has no confidence to measure"
        elif (run_setting, base) in cut_short:  # as in tables, where one such seed takes the line's rank
            reason = f"training of {plain(row.method)} was cut short with {_describe_setting(run_setting)}"
        if reason:
            exclusions.counts[f"Left out: {reason}"] += 1
            continue
        first = seen.setdefault((run_setting, row.method, row.seed), row)
        if first.records_digest != row.records_digest:
            raise UserError(
                f"{plain(row.method)} on {plain(row.task)}, seed {row.seed}: two results of one setting differ,"
                f" {path_of(first, Path())} and {path_of(row, Path())}; move one of them to another folder"
            )
    return list(seen.values())


def reference_of(rows: Sequence[ResultRow]) -> RunSettings:
    """Return the setting (what a run fixes for all methods) of the table whose claims are examined.

    Settings without tuning are preferred, then those with the model's own answers, then those with the preset's
    protocol. If several remain, the one with most results is taken.

    Args:
        rows: eligible results of the table's preset, at least one.

    Raises:
        UserError: all results are recalibrated.
    """
    sizes = Counter(setting_of(row) for row in rows if not recalibration_of(row.method))
    if not sizes:
        raise UserError(
            "All results are recalibrated; the table needs them as they are: run them without --recalibrate"
        )
    return min(
        sizes, key=lambda s: (s.tuning != NONE, s.answers != USUAL_ANSWERS, s.protocol != OF_PRESET, -sizes[s], s)
    )


def _holders(row: ResultRow, name: str) -> tuple[str, str]:
    """Return the name of an option, and the method if it holds for the row's method alone, or else an empty string."""
    reads_labels = row.train_on is not None or row.labels_seen != LabelsSeen()
    return name, row.method if name in _OF_METHOD or (name in _OF_LABELS and not reads_labels) else ""


# --- records ----------------------------------------------------------------------------------------------------------


def build_result_sets(
    rows: Sequence[ResultRow], folder: Path, methods: Sequence[str], reference: RunSettings, exclusions: Exclusions
) -> list[ResultSet]:
    """Group results into sets in which at least two methods have the same answers and labels.

    Sets with the setting of the table come first. A setting is what a run fixes for all methods.

    Args:
        rows: eligible results.
        folder: folder of results.
        methods: names of the compared methods, without recalibration.
        reference: setting of the table.
        exclusions: receives sentences on missing methods and on results that are left out.

    Raises:
        UserError: a file is damaged, or no two methods have the same answers in the setting of the table.
    """
    cells: dict[SetKey, dict[str, ResultRow]] = defaultdict(dict)
    for row in rows:
        key = setting_of(row), recalibration_of(row.method) or NONE, row.seed
        cells[key][base_of(row.method)] = row
    result_sets: list[ResultSet] = []
    for key in sorted(cells, key=lambda key: (key[0] != reference, key[1] != NONE, key)):
        by_method = {name: cells[key][name] for name in methods if name in cells[key]}
        records = {name: records_of(row, folder).by_id() for name, row in by_method.items()}
        by_labels: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for name, answers in records.items():
            by_labels[answers.labels].append(name)
        largest = max(by_labels.values(), key=len, default=[])
        described = _describe(key)
        for name in (name for name in records if name not in largest):
            exclusions.counts[f"Left out: {name} rests on other answers or labels than most others: {described}"] += 1
        if len(records) == 1:
            exclusions.counts[f"Left out: {largest[0]} alone has a result with {described}"] += 1
        if len(largest) <= 1:
            continue
        result_set = ResultSet(*key, {name: records[name] for name in largest})
        if result_sets and result_set.first.id != result_sets[0].first.id:
            exclusions.counts[f"Left out: {described} asks other questions than the table"] += 1
            continue
        missing = [name for name in methods if name not in by_method]
        if missing:
            exclusions.missing.append(f"No result with {described}: {join(missing)}.")
        result_sets.append(result_set)
    if all(len(names.keys() & set(methods)) < 2 for key, names in cells.items() if key[0] == reference):
        raise UserError(
            f"No seed has results of two methods of the table ({join(methods)}), so none can be compared in a"
            " universe; run them with the same --seed"
        )
    if not result_sets or result_sets[0].setting != reference:
        raise UserError("No two methods of the table rest on the same answers and labels, so none can be compared")
    return result_sets


def ranking_values(records: QuestionRecords) -> FloatArray:
    """Return the input (n,) of rank-based metrics: normalised ranks of the scores; without scores, confidences."""
    return records.confidence if records.score is None else normalised_ranks(records.score)


def _describe(key: SetKey) -> str:
    run_setting, recalibration, seed = key
    also = "" if recalibration == NONE else f", recalibration {recalibration}"
    return f"{_describe_setting(run_setting)}, seed {seed}{also}"


def _describe_setting(s: RunSettings) -> str:
    """Describe in words what a run fixes for all methods: the preset and every option that is not the default."""
    parts = [f"preset {s.preset}"]
    parts += [f"tuning by {s.tuning}"] if s.tuning != NONE else []
    parts += [f"answers {s.answers}"] if s.answers != USUAL_ANSWERS else []
    parts += [f"judge {s.judge}"] if s.judge not in USUAL_JUDGES else []
    parts += [s.protocol] if s.protocol != OF_PRESET else []
    return ", ".join(parts)
