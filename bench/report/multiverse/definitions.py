"""Analysis choices that need no forward pass: metric definitions, grading rules, treatment of unparsed answers.

A metric definition is included if published tables use it, or if the paper that introduced it proposes it for this
purpose. Example: `FAMILIES[0].definitions[0].label` is "RMSCE".
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bench.grading.grade import parse_letter, same_text, substring_rule
from bench.report import competition
from bench.results.question_texts import ANSWER_SEPARATOR, QuestionText
from bench.stats import Average, Settings

DEFINITION, AGGREGATION, SEED, RECALIBRATION, GRADING, UNREAD = (
    "definition", "average", "seed", "recalibration", "grading", "unread answers",
)  # fmt: skip
"""Names of analysis choices (dimensions). Further choices are named as the fields of `result_sets.RunSettings`."""
CALIBRATION = "calibration"
"""Name of the claims on calibration; methods whose AUROC is not above chance take no part in them."""
AVERAGES: Mapping[Average, str] = {"questions": "over questions", "subjects": "over subjects"}
"""Way to average a metric -> its name as an option of the analysis choice AGGREGATION."""
AS_RUN, INCLUDED, LEFT_OUT, NONE = "as run", "kept", "left out", "none"
USUAL: Mapping[str, str] = MappingProxyType({
    RECALIBRATION: NONE, GRADING: AS_RUN, UNREAD: INCLUDED, AGGREGATION: AVERAGES[Settings().average],
})  # fmt: skip
"""Analysis choice -> option that the table uses, for choices that are no field of `result_sets.RunSettings`. SEED is
missing, since the table averages seeds."""


@dataclass(frozen=True)
class Definition:
    """One metric definition by which claims of a family, e.g. those on calibration, can be tested."""

    label: str
    """Name of this definition as an option of the analysis choice DEFINITION."""
    metric: str
    """Name of the metric in `bench.metrics.METRICS`."""
    bins: int | None = None
    """Number of bins; None: the number in `Settings`, if the metric has bins at all."""


@dataclass(frozen=True)
class Family:
    """A family: claims of one kind, e.g. on calibration, and every metric definition by which they can be tested."""

    name: str
    metric: str
    """Metric by which the table tests the claims of this family."""
    definitions: tuple[Definition, ...]


FAMILIES = (
    Family(
        CALIBRATION, competition.CALIBRATION,
        (
            Definition("RMSCE", "rmsce"),
            Definition("ECE 10 bins", "ece", 10),
            Definition("ECE 15 bins", "ece", 15),
            Definition("ECE 10 equal-mass bins", "ece_mass", 10),
            Definition("ECE 15 equal-mass bins", "ece_mass", 15),
            Definition("ECE - floor", "ece_debiased"),
            Definition("top-label ECE", "ece_ref"),
            Definition("top-label ECE closed", "ece_ref_closed"),
            Definition("smECE", "smece"),
            Definition("Brier MCB", "brier_mcb"),
        ),
    ),
    Family("Brier", "brier", (Definition("Brier", "brier"),)),
    Family(
        "discrimination", "auroc",
        (Definition("AUROC", "auroc"), Definition("AUCPR", "aucpr"), Definition("AURC", "aurc")),
    ),
)  # fmt: skip
"""All families (kinds of claims). E-AURC is left out, because methods with the same labels differ in it exactly as in
AURC."""


# --- grading ----------------------------------------------------------------------------------------------------------

Rule = Callable[[str, str, str], bool]
"""Grading rule: called with the answer, the gold answer and the option letters, it returns whether the answer is
right."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_normalised(text: str) -> str:
    """Return a text as SQuAD's exact match compares it (Rajpurkar et al., 2016, evaluate-v1.1).

    The text becomes lower-case and loses punctuation, articles and repeated white space.

    >>> squad_normalised("The  Blue-Green delta.")
    'bluegreen delta'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


OPEN_RULES: Mapping[str, Rule] = MappingProxyType({
    "match": lambda answer, gold, _: same_text(answer, gold),
    "SQuAD's text": lambda answer, gold, _: squad_normalised(answer) == squad_normalised(gold),
    "same text": lambda answer, gold, _: answer.strip().casefold() == gold.strip().casefold(),
    "contains it": lambda answer, gold, _: gold.strip().casefold() in answer.casefold(),
})  # fmt: skip
"""Name -> grading rule for open answers. In this order: the benchmark's own rule; SQuAD's exact match; equality up to
case and surrounding space; containment of the gold answer (Mallen et al., 2023)."""
CHOICE_RULES: Mapping[str, Rule] = MappingProxyType({
    "exact letter": lambda answer, gold, letters: parse_letter(answer, letters) == gold,
    "letter anywhere": lambda answer, gold, _: substring_rule(answer, gold),
})  # fmt: skip
"""Name -> grading rule for answers that are option letters: the benchmark's own rule, and one that finds the letter
anywhere in the answer."""


def is_right(rule: Rule, answer: str, question: QuestionText, letters: str) -> bool:
    """Return whether an answer is right by a grading rule; an empty answer is always wrong.

    Args:
        rule: the grading rule.
        answer: answer of the model.
        question: text, options and gold answers; if there are several, it is enough to match one.
        letters: option letters of the protocol, at least as many as the question has options.
    """
    golds = (question.gold,) if question.choices else question.gold.split(ANSWER_SEPARATOR)
    question_letters = letters[: len(question.choices)]
    return bool(answer.strip()) and any(rule(answer, gold, question_letters) for gold in golds)
