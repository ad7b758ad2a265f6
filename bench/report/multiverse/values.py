"""Worlds -> universes: every definition, average and grading of each, with the tests that it allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.api.protocol import Protocol
from bench.metrics import METRICS
from bench.report.multiverse.definitions import (
    AGGREGATION,
    AS_RUN,
    AVERAGES,
    CHOICE_RULES,
    DEFINITION,
    FAMILIES,
    GRADING,
    KEPT,
    LEFT_OUT,
    OPEN_RULES,
    UNREAD,
    Definition,
    is_right,
)
from bench.report.multiverse.model import LEVEL, Universe
from bench.report.multiverse.result_sets import USUAL_ANSWERS, ResultSet, order_of
from bench.results.questions import QuestionText
from bench.stats import Sampling, Settings, compare, influence, strata_of
from bench.stats.strata import value_of


@dataclass(frozen=True, eq=False)
class Graded:
    """A world with one grading, and with or without unread answers."""

    world: ResultSet
    choices: Mapping[str, str]
    rows: BoolArray
    """(n,) answers that count."""
    correct: BoolArray
    """(n,)."""


# --- gradings ---------------------------------------------------------------------------------------------------------


def gradings(
    worlds: Sequence[ResultSet], texts: Mapping[str, QuestionText]
) -> tuple[list[Graded], dict[tuple[str, str], str], list[str]]:
    """Every world under every grading and rule for unread answers that changes something in some world.

    Also words on what each dimension's option changes, and sentences on gradings that are no choice here.

    Args:
        worlds: at least one, all of the same questions.
        texts: the questions by id, as far as they are beside the results.
    """
    given = [world.any for world in worlds]
    kept, effects = {AS_RUN: [each.correct for each in given]}, dict[tuple[str, str], str]()
    alike: dict[str, list[str]] = defaultdict(list)
    ids, letters = given[0].id, Protocol().letters
    asked = [texts[name] for name in ids if name in texts]
    regraded = len(asked) == len(ids) and all(world.setting.answers.startswith(USUAL_ANSWERS) for world in worlds)
    rules = CHOICE_RULES if asked and asked[0].choices else OPEN_RULES
    for name, rule in rules.items() if regraded else ():
        labels = [
            np.array([is_right(rule, *pair, letters) for pair in zip(each.answer, asked, strict=True)])
            for each in given
        ]
        same = next((known for known, own in kept.items() if all(map(np.array_equal, own, labels))), None)
        if same is not None:
            alike[same].append(f"“{name}”")
            continue
        kept[name] = labels
        changed = max(int((own != each.correct).sum()) for each, own in zip(given, labels, strict=True))
        effects[GRADING, name] = f"changes up to {changed:,} labels"
    remarks = [
        f"No choice of their own: gradings that give the same labels as “{name}”: {', '.join(names)}."
        for name, names in alike.items()
    ]
    if not regraded:
        remarks.append(
            "Answers can't be graded otherwise: the questions, or answers that the model gave itself, are not beside"
            " the results."
        )
    unread = [KEPT]
    if any(not each.parsed.all() and each.parsed.any() for each in given):
        unread.append(LEFT_OUT)
        effects[UNREAD, LEFT_OUT] = f"up to {max(int((~each.parsed).sum()) for each in given):,} answers"
    else:
        remarks.append("Every answer was read, so there is no choice about unread ones.")
    graded = [
        Graded(world, {**world.choices, GRADING: name, UNREAD: rule}, each.parsed | (rule == KEPT), labels[i])
        for i, (world, each) in enumerate(zip(worlds, given, strict=True))
        for name, labels in kept.items()
        for rule in unread
        if rule == KEPT or each.parsed.any()
    ]
    empty = sum(not each.parsed.any() for each in given) if LEFT_OUT in unread else 0
    if empty:
        remarks.append(
            f"In {empty} of {len(given)} sets of results no answer was read, so none are left without unread ones."
        )
    return graded, effects, remarks


# --- universes --------------------------------------------------------------------------------------------------------


def universes(graded: Sequence[Graded], settings: Settings) -> Iterator[Universe]:
    """Every universe of every family."""
    for each in graded:
        subjects = [name for name, is_in in zip(each.world.any.subject, each.rows, strict=True) if is_in]
        strata, correct = strata_of(subjects), each.correct[each.rows]
        for average in AVERAGES if len(strata.names) > 1 else (settings.average,):
            view = _View(each, Sampling.of(strata, correct, average), settings)
            for family in FAMILIES:
                for definition in family.definitions:
                    choices = {**each.choices, AGGREGATION: AVERAGES[average], DEFINITION: definition.label}
                    yield Universe(
                        family.name, definition.metric, choices, view.values(definition), view.wins(definition)
                    )


@dataclass(frozen=True, eq=False)
class _View:
    """The answers of one universe before a definition is chosen."""

    graded: Graded
    sampling: Sampling
    settings: Settings

    def values(self, definition: Definition) -> dict[str, float]:
        """Value of each method for which it is defined; calibration errors below 0, which are estimates, count as 0."""
        of, metric, bins = self.sampling, definition.metric, definition.bins or self.settings.bins
        found = {
            name: value_of(metric, given, of.correct, of.strata, of.average, bins)
            for name, given in self._given(metric).items()
        }
        return {name: max(0.0, value) for name, value in found.items() if value is not None}

    def wins(self, definition: Definition) -> frozenset[tuple[str, str]] | None:
        """Significant differences; None where nothing is tested."""
        of, metric = self.sampling, definition.metric
        if not definition.is_tested:
            return None
        influences = {
            name: influence(metric, given, given, of.correct, of.strata, of.average)
            for name, given in self._given(metric).items()
        }
        pairs = compare(metric, influences, of, [], self.settings)
        if all(pair.p_corrected is None for pair in pairs):
            return None
        return frozenset(filter(None, (pair.decided(1 - LEVEL) for pair in pairs)))

    def _given(self, metric: str) -> dict[str, FloatArray]:
        """What the metric is of, by method, (n,)."""
        records, rows = self.graded.world.records, self.graded.rows
        is_order = METRICS[metric].of_order
        return {name: (order_of(own) if is_order else own.confidence)[rows] for name, own in records.items()}
