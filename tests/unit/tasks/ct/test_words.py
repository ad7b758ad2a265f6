"""How each of the 20 data sets is asked, word for word: golden files, and the words once more by hand.

`UPDATE_GOLDEN=1 pytest tests/unit/tasks/ct` rewrites the golden files; read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.api import Format, Question
from bench.api.protocol import Protocol
from bench.prompts import templates
from tasks.ct.composer import CHOICE_SETS, OPEN_SETS
from tasks.ct.data_set import DataSet, ReadOptions, SplitQuestions

GOLDEN = Path(__file__).parents[3] / "golden"
PROTOCOL = Protocol()
SEED = PROTOCOL.exemplar_seed
BY_NAME = {each.name: each for each in CHOICE_SETS}
CASES = [(each, Format.CHOICE) for each in CHOICE_SETS] + [(each, Format.OPEN) for each in OPEN_SETS]
IDS = [f"{each.name}-{fmt.value}" for each, fmt in CASES]


def kept(hub: SimpleNamespace, data_set: DataSet, fmt: Format, n: int = 3) -> SplitQuestions:
    path = f"{data_set.card.folder}/{data_set.card.splits['train']}"
    return SplitQuestions(hub.like({path: n}), data_set, "train", ReadOptions(fmt, SEED), {})


def message(data_set: DataSet, fmt: Format, question: Question, shots: list[Question]) -> str:
    prompt = templates.build(question, shots, data_set.style(fmt), fmt, PROTOCOL)
    return prompt.messages[1].content


@pytest.mark.parametrize(("data_set", "fmt"), CASES, ids=IDS)
def test_prompts_equal_their_golden_file(hub: SimpleNamespace, data_set: DataSet, fmt: Format) -> None:
    rows = list(kept(hub, data_set, fmt))
    shots = [rows[1:], rows[:1], []]
    shown = "".join(
        f"--- {question.id}, right: {templates.target(question, fmt, PROTOCOL.letters)}\n"
        f"{message(data_set, fmt, question, exemplars)}\n--- end\n"
        for question, exemplars in zip(rows, shots, strict=True)
    )
    path = GOLDEN / f"ct_{data_set.name}_{fmt.value}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown, encoding="utf-8", newline="\n")
    assert shown == path.read_text(encoding="utf-8")


# --- the words once more, as docs/methods.md §1.4 has them ------------------------------------------------------------

Context = Callable[[dict[str, Any]], str]


class Words(NamedTuple):
    choice: str
    open: str
    footer: str
    context: Context
    """Without the options."""
    open_context: Context
    options: Callable[[dict[str, Any], int], list[str]]
    gold: list[int]
    response: str = "Answer:"


def in_choices(row: dict[str, Any], i: int) -> list[str]:
    return row["choices"]["text"]


def of_sciq(row: dict[str, Any], i: int) -> list[str]:
    options = [row["distractor1"], row["distractor2"], row["distractor3"], row["correct_answer"]]
    return [options[j] for j in np.random.default_rng(23 + i).permutation(4)]


def fixed(*options: str) -> Callable[[dict[str, Any], int], list[str]]:
    return lambda row, i: list(options)


def columns(*names: str) -> Callable[[dict[str, Any], int], list[str]]:
    return lambda row, i: [row[name] for name in names]


QUESTIONS = "The following are questions "
WITH_CHOICES, WITH = "(with multiple-choice answers).", "(with answers)."
FOLLOWING, NEXT = "Now, answer the following.", "Now, answer the next question."
ENTAILMENT = "The following are questions (with premise, hypothesis, and answers) about entailment."
YES_NO = '"Yes", "No", or "It\'s impossible to say"'
MATH = [["2 ( pi )", "12", "0.5", "1", "none of these"], ["1", "2", "3", "4", "3 / 2"], ["8", "6", "4", "2", "0"]]
NLI = Words(
    "The following are questions (with multiple-choice answers) about entailment.",
    ENTAILMENT,
    FOLLOWING,
    lambda r: f"Premise:\n{r['premise']}\n\nHypothesis:\n{r['hypothesis']}",
    lambda r: (
        f"Read the following premise and answer if the hypothesis is true. Respond with only {YES_NO} answer and no"
        f" additional text.\n{r['premise']}\nHypothesis: {r['hypothesis']}"
    ),
    fixed("Yes", "It's impossible to say", "No"),
    [2, 0, 1],
)
ARC = Words(
    QUESTIONS + WITH_CHOICES, QUESTIONS + WITH, FOLLOWING,
    lambda r: f"Question:\n{r['question']}", lambda r: f"The question is: {r['question']}", in_choices, [0, 1, 4],
)  # fmt: skip
WORDS = {
    "arc": ARC,
    "arc_challenge": ARC,
    "boolq": Words(
        "The following are comprehension passages (with multiple-choice answers).",
        "The following are comprehension passages (with answers).",
        FOLLOWING,
        lambda r: f"Passage:\n{r['passage']}\n\nQuestion:\n{r['question']}",
        lambda r: (
            'Read the following passage and answer the question. Respond with only "True" or "False" and no additional'
            f" text.\nPassage: {r['passage']}\nQuestion: {r['question']}?"
        ),
        fixed("False", "True"),
        [0, 1, 1],
    ),
    "cb": Words(
        ENTAILMENT,
        ENTAILMENT,
        FOLLOWING,
        NLI.context,
        lambda r: (
            f"Read the following premise and answer if the hypothesis is true. Respond only with {YES_NO} and no"
            f" additional text.\n{r['premise']}\nHypothesis: {r['hypothesis']}."
        ),
        fixed("Yes", "No", "It's impossible to say"),
        [2, 0, 1],
    ),
    "commonsense_qa": Words(
        QUESTIONS + WITH_CHOICES, QUESTIONS + WITH, FOLLOWING,
        lambda r: f"Question:\n{r['question']}", lambda r: f"Question: {r['question']}", in_choices, [0, 1, 4],
    ),
    "copa": Words(
        QUESTIONS + WITH_CHOICES,
        QUESTIONS + WITH,
        FOLLOWING,
        lambda r: f"Premise:\n{r['premise']}",
        lambda r: (
            'Read the following premise and pick the correct choice. Respond only with "1" or "2" and no additional'
            f" text.\nPremise: {r['premise']}\n  Choice 1: {r['choice1']}\n  Choice 2: {r['choice2']}"
        ),
        columns("choice1", "choice2"),
        [0, 1, 0],
    ),
    "cosmos_qa": Words(
        "The following are some contexts and questions (with multiple-choice answers).",
        "The following are some contexts and questions (with answers).",
        FOLLOWING,
        lambda r: f"Context:\n{r['context']}\n\nQuestion:\n{r['question']}",
        lambda r: (
            "Read the following paragraph and answer the question.\n"
            f"Paragraph: {r['context']}\nQuestion: {r['question']}"
        ),
        columns("answer0", "answer1", "answer2", "answer3"),
        [1, 0, 3],
    ),
    "hellaswag": Words(
        "The following are some context completions (with multiple-choice answers).", "", FOLLOWING,
        lambda r: f"Context:\n{r['ctx']} {r['ctx_a']} {r['ctx_b']}", lambda r: "", lambda r, i: r["endings"], [0, 2, 1],
    ),
    "math_qa": Words(
        "The following are math questions (with multiple-choice answers).",
        "The following are math questions (with answers).",
        NEXT,
        lambda r: f"Problem:\n{r['Problem']}",
        lambda r: f"Provide your best answer for the following math problem.\nProblem: {r['Problem']}",
        lambda r, i: MATH[i],
        [0, 4, 2],
    ),
    "multirc": Words(
        "The following are reading comprehensions (with multiple-choice answers).",
        "The following are reading comprehensions (with answers).",
        FOLLOWING,
        lambda r: f"Paragraph:\n{r['paragraph']}\n\nQ: {r['question']}\n\nA: {r['answer']}",
        lambda r: (
            "Read the following paragraph along with the question and answer. Then, respond with whether the answer is"
            ' correct. Respond with only "Yes" or "No" and no additional text.\n'
            f"Passage: {r['paragraph']}\nQuestion: {r['question']}\nAnswer: {r['answer']}. Is the answer correct?"
        ),
        fixed("No", "Yes"),
        [1, 0, 1],
        "Response:",
    ),
    "obqa": Words(
        "The following are questions with multiple-choice answers.",
        "The following are questions with answers.",
        NEXT,
        lambda r: f"Question:\n{r['question_stem']}",
        lambda r: f"Provide your best answer for the following question.\nQuestion: {r['question_stem']}",
        in_choices,
        [0, 1, 3],
    ),
    "piqa": Words(
        "The following are questions with multiple-choice answers.",
        "The following are questions with answers.",
        NEXT,
        lambda r: f"Goal:\n{r['goal']}",
        lambda r: f"Provide advice on how to accomplish the following goal.\nGoal: {r['goal']}",
        columns("sol1", "sol2"),
        [0, 1, 0],
    ),
    "sciq": Words(
        "The following are science exam questions with multiple-choice answers.",
        "The following are science exam questions with answers.",
        NEXT,
        lambda r: (f"Support:\n{r['support']}\n" if r["support"] else "") + f"\nQuestion:\n{r['question']}",
        lambda r: (
            "Read the following and answer the question.\n"
            + (r["support"] + "\n" if r["support"] else "")
            + f"Question: {r['question']}"
        ),
        of_sciq,
        [list(np.random.default_rng(23 + i).permutation(4)).index(3) for i in range(3)],
    ),
    "siqa": Words(
        "The following are social interaction questions with multiple-choice answers.",
        "The following are social interaction questions with answers.",
        NEXT,
        lambda r: f"Context:\n{r['context']}\n\nQuestion:\n{r['question']}",
        lambda r: (
            "Read the following paragraph and answer the question.\n"
            f"Paragraph: {r['context']}\nQuestion: {r['question']}"
        ),
        columns("answerA", "answerB", "answerC"),
        [1, 0, 2],
    ),
    "snli": NLI,
    "anli_r1": NLI,
    "anli_r2": NLI,
    "anli_r3": NLI,
    "trec": Words(
        "The following are questions with multiple-choice answers.",
        "The following are questions with answers.",
        NEXT,
        lambda r: f"Question:\n{r['text']}",
        lambda r: (
            "Read the following question and then pick a category that describes the question.\n"
            f"Question: {r['text']}\n"
            "What category is the question in? Choose one from Abbreviation, Entity, Description and abstract concept,"
            " Human being, Location, Numeric value. Respond with only the category and no additional text."
        ),
        fixed(
            "Abbreviation", "Entity", "Description and abstract concept", "Human being", "Location", "Numeric value"
        ),
        [5, 2, 0],
    ),
    "winogrande": Words(
        "The following are ambiguous sentences (with answer choices).",
        "The following are ambiguous sentences (with answers).",
        "Now, resolve the next ambiguity.",
        lambda r: f"Sentence:\n{r['sentence']}",
        lambda r: (
            'Fill in the blank "_" in the following sentence from the following choices. Respond with only "1" or "2"'
            f" and no additional text.\nSentence: {r['sentence']}\n"
            f"  Choice 1: {r['option1'].join(r['sentence'].split('_'))}\n"
            f"  Choice 2: {r['option2'].join(r['sentence'].split('_'))}"
        ),
        columns("option1", "option2"),
        [1, 0, 0],
    ),
}  # fmt: skip


def by_hand(name: str, fmt: Format, rows: list[dict[str, Any]]) -> str:
    """The user message of row 0 with rows 1 and 2 as exemplars, joined as the official collection joins it."""
    words = WORDS[name]

    def asked(i: int) -> str:
        if fmt is Format.OPEN:
            return f"{words.open_context(rows[i])}\n{words.response}"
        lines = [f"  ({'abcdef'[j]}): {option}" for j, option in enumerate(words.options(rows[i], i))]
        return "\n".join([words.context(rows[i]), "\nChoices:", *lines, "Answer:"])

    def answered(i: int) -> str:
        right = "abcdef"[words.gold[i]] if fmt is Format.CHOICE else words.options(rows[i], i)[words.gold[i]]
        if name in {"copa", "winogrande"} and fmt is Format.OPEN:
            right = str(words.gold[i] + 1)
        return f"{asked(i)} {right}".strip()

    end = "" if (name, fmt) == ("trec", Format.OPEN) else "\n\n"
    header = words.choice if fmt is Format.CHOICE else words.open
    return "\n".join([f"{header}\n", f"{answered(1)}\n", f"{answered(2)}\n", f"{words.footer}{end}"]) + asked(0)


@pytest.mark.parametrize(("data_set", "fmt"), CASES, ids=IDS)
def test_prompt_says_what_the_specification_says(hub: SimpleNamespace, data_set: DataSet, fmt: Format) -> None:
    question, *shots = kept(hub, data_set, fmt)
    family = "anli" if data_set.name.startswith("anli") else data_set.name
    assert message(data_set, fmt, question, shots) == by_hand(data_set.name, fmt, hub.rows[family])


def test_the_words_of_every_data_set_are_checked() -> None:
    assert set(WORDS) == set(BY_NAME)
    assert len(CHOICE_SETS) == 20
    assert [each.name for each in CHOICE_SETS] == sorted(BY_NAME)
    assert {each.name for each in CHOICE_SETS} - {each.name for each in OPEN_SETS} == {"hellaswag"}
