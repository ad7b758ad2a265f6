"""Expand sets of results into universes, i.e. single analyses, with significance tests.

Each set is combined with every grading rule, treatment of unparsed answers, average and metric definition.
"""

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
    INCLUDED,
    LEFT_OUT,
    OPEN_RULES,
    UNREAD,
    Definition,
    is_right,
)
from bench.report.multiverse.model import LEVEL, Universe
from bench.report.multiverse.result_sets import USUAL_ANSWERS, ResultSet, ranking_values
from bench.results.question_texts import QuestionText
from bench.stats import TESTED, Sampling, Settings, compare, influence, strata_of
from bench.stats.strata import value_of


@dataclass(frozen=True, eq=False)
class GradedSet:
    """Results of several methods whose n answers are graded by one rule; unparsed answers are included or not."""

    result_set: ResultSet
    choices: Mapping[str, str]
    """Analysis choice -> option: options of the run, the grading rule, and the treatment of unparsed answers."""
    rows: BoolArray
    """Mask of the answers that are included, shape (n,)."""
    correct: BoolArray
    """Whether each answer is right by the grading rule, shape (n,)."""


# --- gradings ---------------------------------------------------------------------------------------------------------


def gradings(
    result_sets: Sequence[ResultSet], texts: Mapping[str, QuestionText]
) -> tuple[list[GradedSet], dict[tuple[str, str], str], list[str]]:
    """Grade every set of results by every rule that changes a label, with and without unparsed answers.

    Args:
        result_sets: at least one set (results of several methods), all of the same questions.
        texts: question id -> text, where texts are stored beside the results.

    Returns:
        Three values. First, the graded sets. Second, (choice, option) -> what the option changes, in words. Third,
            remarks on grading rules and treatments that are left out, e.g. because they change no label.
    """
    records = [s.first for s in result_sets]
    labels_by_rule, effects = {AS_RUN: [r.correct for r in records]}, dict[tuple[str, str], str]()
    duplicates: dict[str, list[str]] = defaultdict(list)
    ids, letters = records[0].id, Protocol().letters
    questions = [texts[name] for name in ids if name in texts]
    can_regrade = len(questions) == len(ids) and all(s.setting.answers.startswith(USUAL_ANSWERS) for s in result_sets)
    rules = CHOICE_RULES if questions and questions[0].choices else OPEN_RULES
    for name, rule in rules.items() if can_regrade else ():
        labels = [
            np.array([is_right(rule, *pair, letters) for pair in zip(r.answer, questions, strict=True)])
            for r in records
        ]
        same = next((k for k, other in labels_by_rule.items() if all(map(np.array_equal, other, labels))), None)
        if same is not None:
            duplicates[same].append(f"“{name}”")
            continue
        labels_by_rule[name] = labels
        changed = max(int((y != r.correct).sum()) for r, y in zip(records, labels, strict=True))
        effects[GRADING, name] = f"changes up to {changed:,} labels"
    remarks = [
        f"No choice of their own: gradings that give the same labels as “{name}”: {', '.join(names)}."
        for name, names in duplicates.items()
    ]
    if not can_regrade:
        remarks.append(
            "Answers can't be graded otherwise: the questions, or answers that the model gave itself, are not beside"
            " the results."
        )
    unread = [INCLUDED]
    if any(not r.parsed.all() and r.parsed.any() for r in records):
        unread.append(LEFT_OUT)
        effects[UNREAD, LEFT_OUT] = f"up to {max(int((~r.parsed).sum()) for r in records):,} answers"
    else:
        remarks.append("Every answer was read, so there is no choice about unread ones.")
    graded = [
        GradedSet(s, {**s.choices, GRADING: name, UNREAD: rule}, r.parsed | (rule == INCLUDED), labels[i])
        for i, (s, r) in enumerate(zip(result_sets, records, strict=True))
        for name, labels in labels_by_rule.items()
        for rule in unread
        if rule == INCLUDED or r.parsed.any()
    ]
    empty = sum(not r.parsed.any() for r in records) if LEFT_OUT in unread else 0
    if empty:
        remarks.append(
            f"In {empty} of {len(records)} sets of results no answer was read, so none are left without unread ones."
        )
    return graded, effects, remarks


# --- universes --------------------------------------------------------------------------------------------------------


def universes(graded: Sequence[GradedSet], settings: Settings) -> Iterator[Universe]:
    """Yield every universe (analysis): each combination of graded set, average, and metric definition of a family.

    A family is a kind of claims, e.g. on calibration; its claims can be tested by several metric definitions.
    """
    for g in graded:
        subjects = [name for name, is_in in zip(g.result_set.first.subject, g.rows, strict=True) if is_in]
        strata, correct = strata_of(subjects), g.correct[g.rows]
        for average in AVERAGES if len(strata.names) > 1 else (settings.average,):
            answers = _GradedAnswers(g, Sampling.of(strata, correct, average), settings)
            for family in FAMILIES:
                for definition in family.definitions:
                    choices = {**g.choices, AGGREGATION: AVERAGES[average], DEFINITION: definition.label}
                    yield Universe(
                        family.name, definition.metric, choices, answers.values(definition), answers.wins(definition)
                    )


@dataclass(frozen=True, eq=False)
class _GradedAnswers:
    """Graded results of several methods, with one way to average; all metric definitions are computed from them."""

    graded: GradedSet
    sampling: Sampling
    settings: Settings

    def values(self, definition: Definition) -> dict[str, float]:
        """Return method -> value of the metric, for methods where it is defined.

        Negative values, which occur for debiased calibration errors, become 0.
        """
        sample, metric, bins = self.sampling, definition.metric, definition.bins or self.settings.bins
        values = {
            name: value_of(metric, inputs, sample.correct, sample.strata, sample.average, bins)
            for name, inputs in self._inputs(metric).items()
        }
        return {name: max(0.0, value) for name, value in values.items() if value is not None}

    def wins(self, definition: Definition) -> frozenset[tuple[str, str]] | None:
        """Return (winner, loser) of each significant difference, corrected for all pairs; None if nothing is tested."""
        sample, metric = self.sampling, definition.metric
        if metric not in TESTED:  # only values are compared
            return None
        influences = {
            name: influence(metric, inputs, inputs, sample.correct, sample.strata, sample.average)
            for name, inputs in self._inputs(metric).items()
        }
        pairs = compare(metric, influences, sample, [], self.settings)
        if all(pair.p_corrected is None for pair in pairs):
            return None
        return frozenset(filter(None, (pair.decided(1 - LEVEL) for pair in pairs)))

    def _inputs(self, metric: str) -> dict[str, FloatArray]:
        """Return method -> input of the metric, one number for each included answer.

        It is the confidence; or the rank of the score, if the metric is rank-based and the method has scores.
        """
        records, rows = self.graded.result_set.records, self.graded.rows
        is_order = METRICS[metric].is_rank_based
        return {name: (ranking_values(r) if is_order else r.confidence)[rows] for name, r in records.items()}
