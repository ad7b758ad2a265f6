"""Worlds -> universes: every definition, average and grading of each, with the tests that it allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.api.protocol import Protocol
from bench.metrics import METRICS, ece_floor
from bench.metrics.summary import seed_of
from bench.report.multiverse.definitions import (
    AGGREGATION,
    AS_RUN,
    DEFINITION,
    FAMILIES,
    GRADING,
    KEPT,
    LEFT_OUT,
    MACRO,
    POOLED,
    UNREAD,
    Definition,
    is_right,
    rules_of,
)
from bench.report.multiverse.model import LEVEL, Option, Universe
from bench.report.multiverse.worlds import World
from bench.results import questions
from bench.results.questions import QuestionText
from bench.stats import NoInterval, Sample, Settings, Strata, compare, losses, resample, strata_of
from bench.stats.intervals import no_spread_of_ranks
from bench.stats.resampling import RANKED, Resampled

_NOT_GRADED = (
    "Answers can't be graded otherwise: the questions, or answers that the model gave itself, are not beside the"
    " results."
)


@dataclass(frozen=True, eq=False)
class Graded:
    """A world with one grading, and with or without unread answers."""

    world: World
    choices: Mapping[str, str]
    rows: BoolArray
    """(n,) answers that count."""
    correct: BoolArray
    """(n,)."""


# --- gradings ---------------------------------------------------------------------------------------------------------


def gradings(worlds: Sequence[World]) -> tuple[list[Graded], list[Option], list[str]]:
    """Every world under every grading and rule for unread answers that changes something in some world.

    Returns:
        Graded worlds, the options of both dimensions, and sentences on gradings that are no choice here.
    """
    rules, notes = _rules(worlds)
    changed = {name: max(int((own != w.correct).sum()) for w, own in zip(worlds, labels, strict=True))
               for name, labels in rules.items()}  # fmt: skip
    kept = {AS_RUN: [w.correct for w in worlds]}
    alike: dict[str, list[str]] = {}
    for name, labels in rules.items():
        other = next((known for known, own in kept.items() if _same(own, labels)), None)
        if other is None:
            kept[name] = labels
        else:
            alike.setdefault(other, []).append(name)
    for other, names in alike.items():
        told = ", ".join(f"“{name}”" for name in names)
        notes.append(f"No choice of their own: gradings that give the same labels as “{other}”: {told}.")
    is_unread = any(not w.parsed.all() and w.parsed.any() for w in worlds)
    if not is_unread:
        notes.append("Every answer was read, so there is no choice about unread ones.")
    unread = (KEPT, LEFT_OUT) if is_unread else (KEPT,)
    made = [
        Graded(world, {**world.choices, GRADING: name, UNREAD: rule}, _counted(world, rule), labels[i])
        for i, world in enumerate(worlds)
        for name, labels in kept.items()
        for rule in unread
        if rule == KEPT or world.parsed.any()
    ]
    empty = sum(not world.parsed.any() for world in worlds) if is_unread else 0
    if empty:
        notes.append(
            f"In {empty} of {len(worlds)} sets of results no answer was read, so none are left without unread ones."
        )
    options = [
        Option(GRADING, name, name == AS_RUN, "" if name == AS_RUN else f"changes up to {changed[name]:,} labels")
        for name in kept
    ]
    most = max(int((~w.parsed).sum()) for w in worlds)
    options += [
        Option(UNREAD, rule, rule == KEPT, "" if rule == KEPT else f"up to {most:,} answers") for rule in unread
    ]
    return made, options, notes


def _same(labels: Sequence[BoolArray], others: Sequence[BoolArray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(labels, others, strict=True))


def _counted(world: World, rule: str) -> BoolArray:
    return world.parsed if rule == LEFT_OUT else np.ones(len(world.correct), dtype=np.bool_)


def _rules(worlds: Sequence[World]) -> tuple[dict[str, list[BoolArray]], list[str]]:
    """Labels of each world by each other rule; none where questions, or the model's own answers, are not there."""
    letters, found = Protocol().letters, dict[str, list[BoolArray]]()
    texts: dict[tuple[object, ...], Mapping[str, QuestionText]] = {}
    for world in worlds:
        key = world.folder, world.row.task, world.row.task_version
        if key not in texts:
            texts[key] = questions.read(*key)
        own = [texts[key].get(name) for name in world.id]
        if None in own or not world.row.answers_source.startswith("generate"):
            return {}, [_NOT_GRADED]
        known = [question for question in own if question is not None]
        for name, rule in rules_of(known[0]).items():
            pairs = zip(world.answer, known, strict=True)
            labels = np.array([is_right(rule, answer, question, letters) for answer, question in pairs], dtype=np.bool_)
            found.setdefault(name, []).append(labels)
    return found, []


# --- universes --------------------------------------------------------------------------------------------------------


def universes(graded: Sequence[Graded], settings: Settings) -> Iterator[Universe]:
    """Every universe of every family."""
    for each in graded:
        subjects = [name for name, is_in in zip(each.world.subject, each.rows, strict=True) if is_in]
        averages = {MACRO: subjects, POOLED: [POOLED] * len(subjects)} if len(set(subjects)) > 1 else {MACRO: subjects}
        for average, names in averages.items():
            view = _View.of(each, average, names, settings)
            for family in FAMILIES:
                for definition in family.definitions:
                    choices = {**each.choices, AGGREGATION: average, DEFINITION: definition.label}
                    yield Universe(
                        family.name, definition.metric, choices, view.values(definition), view.wins(definition)
                    )


@dataclass(frozen=True, eq=False)
class _View:
    """The answers of one universe before a definition is chosen."""

    methods: tuple[str, ...]
    confidence: FloatArray
    order: FloatArray
    correct: BoolArray
    strata: Strata
    average: str
    resampled: Mapping[int, Mapping[str, Mapping[str, Resampled]]]
    """Bins -> method -> metric."""

    @classmethod
    def of(cls, graded: Graded, average: str, subjects: Sequence[str], settings: Settings) -> _View:
        world, rows = graded.world, graded.rows
        confidence, order, correct = world.confidence[:, rows], world.order[:, rows], graded.correct[rows]
        strata = strata_of(subjects)
        runs = {name: p[None] for name, p in zip(world.methods, confidence, strict=True)}
        orders = {name: p[None] for name, p in zip(world.methods, order, strict=True)}
        bins = {each.bins for family in FAMILIES for each in family.definitions if each.tested and each.bins}
        drawn = {
            number: resample(runs, correct, strata, replace(settings, bins=number), orders) for number in sorted(bins)
        }
        return cls(world.methods, confidence, order, correct, strata, average, drawn)

    def values(self, definition: Definition) -> dict[str, float]:
        """Value of each method for which it is defined."""
        metric = METRICS[definition.metric]
        found = {}
        for name, p in zip(self.methods, self.order if metric.of_order else self.confidence, strict=True):
            by_subject = self._by_subject(definition, p)
            known = by_subject[~np.isnan(by_subject)]
            if known.size:
                value = float(known.mean())
                found[name] = max(0.0, value) if definition.metric == "ece_debiased" else value
        return found

    def _by_subject(self, definition: Definition, p: FloatArray) -> FloatArray:
        """Value in each subject (S,), NaN where it is undefined."""
        metric = METRICS[definition.metric]
        bins = {"bins": definition.bins} if metric.binned else {}
        values = [
            metric.compute(p[rows], self.correct[rows], **bins, **({"seed": self._seed(name)} if metric.drawn else {}))
            for name, rows in self.strata.by_name()
        ]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    def _seed(self, subject: str) -> int:
        """Seed of a subject's floor, the same as in results."""
        return 0 if self.average == POOLED else seed_of(subject)

    def wins(self, definition: Definition) -> frozenset[tuple[str, str]] | None:
        """Significant differences; None where nothing is tested."""
        if not definition.tested:
            return None
        samples = {name: self._sample(definition, i, name) for i, name in enumerate(self.methods)}
        pairs = compare(definition.metric, samples, self.strata, [list(samples)], level=LEVEL)
        if not any(pair.p_corrected is not None for pair in pairs):
            return None
        found = set()
        for pair in pairs:
            winner = pair.winner(1 - LEVEL)
            if winner is not None:
                found.add((winner, pair.second if winner == pair.first else pair.first))
        return frozenset(found)

    def _sample(self, definition: Definition, i: int, name: str) -> Sample:
        """One method's metric as it is compared; calibration less the floor as in `bench.stats.summary`."""
        metric, drawn = definition.metric, next(iter(self.resampled.values()))[name]
        p = self.confidence[i]
        if metric in {"ece", "ece_ref", "ece_ref_closed", "ece_debiased"}:
            drawn = self.resampled[definition.bins or 0][name]
        refused = NoInterval("fixed-subjects", "a subject has one question") if self.strata.alone else None
        if metric in RANKED:
            refused = no_spread_of_ranks(self.correct, self.strata)
        if metric == "ece_debiased":
            floors = [ece_floor(p[rows], self.correct[rows], bins=definition.bins or 0, seed=self._seed(subject))
                      for subject, rows in self.strata.by_name()]  # fmt: skip
            raw = drawn["ece"]
            value = float(raw.by_subject[0].mean() - np.mean(floors))
            around = value + raw.replicates - raw.replicates.mean()
            return Sample(max(0.0, value), np.maximum(0.0, around), refused=refused)
        by_question = losses(p, self.correct).get(metric)
        return Sample(drawn[metric].mean, drawn[metric].replicates, by_question, None, refused)
