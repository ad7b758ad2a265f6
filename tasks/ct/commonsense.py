"""Common sense: CommonsenseQA, COPA, HellaSwag, PIQA and WinoGrande.

A row of WinoGrande: {"sentence": "Ann thanked Eve, for _ had helped.", "option1": "Ann", "option2": "Eve", "answer":
"2"}. In the open format, COPA and WinoGrande show both options and expect "1" or "2". HellaSwag's label is a
text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.api import Format, PromptStyle, Row
from tasks.ct.data_set import (
    FOLLOWING,
    KEEP,
    LETTERED,
    NEXT,
    UNLABELLED,
    DataSet,
    DraftQuestion,
    Filter,
    FilterVerdict,
    ReadOptions,
    card_of,
    column_options,
    column_text,
    keep_differing,
    keep_labels,
    keyed,
    label,
    reader,
    text,
    texts,
)


def _options_differ(row: Row) -> FilterVerdict:
    choices = row.values["choices"]
    return keep_differing(choices.get("text")) if isinstance(choices, dict) else KEEP


COMMONSENSE_QA = DataSet(
    name="commonsense_qa",
    card=card_of("tau/commonsense_qa", "default", "94630fe30dad47192a8546eb75f094926d47e155", license="MIT"),
    columns=("question", "choices", "answerKey"),
    read=reader("question", lambda row: keyed(row, 5, 5)),
    choice=PromptStyle("The following are questions (with multiple-choice answers).", FOLLOWING, LETTERED),
    open=PromptStyle("The following are questions (with answers).", FOLLOWING, "Question: {text}"),
    filter=Filter(("choices",), _options_differ),
)


def _two_options(
    question: str, texts_of_options: tuple[str, str], options: tuple[str, ...], gold: int, how: ReadOptions
) -> DraftQuestion:
    """Build a question with two options: lettered, or shown in an open question with the answer "1" or "2"."""
    if how.format is Format.CHOICE:
        return DraftQuestion(question, options, gold)
    return DraftQuestion(question, ("1", "2"), gold, (("first", texts_of_options[0]), ("second", texts_of_options[1])))


def _copa(row: Row, how: ReadOptions) -> DraftQuestion:
    first, second = column_text(row, "choice1"), column_text(row, "choice2")
    return _two_options(text(row, "premise"), (first, second), (first, second), label(row, "label", "01"), how)


COPA = DataSet(
    name="copa",
    card=card_of("aps/super_glue", "copa", "3de24cf8022e94f4ee4b9d55a6f539891524d646", license="research use"),
    # not `question`: the official prompt doesn't say cause or effect
    columns=("premise", "choice1", "choice2", "label"),
    read=_copa,
    choice=PromptStyle(
        "The following are questions (with multiple-choice answers).",
        FOLLOWING,
        "Premise:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are questions (with answers).",
        FOLLOWING,
        (
            'Read the following premise and pick the correct choice. Respond only with "1" or "2" and no additional'
            " text.\nPremise: {text}\n  Choice 1: {first}\n  Choice 2: {second}"
        ),
    ),
)


def _hellaswag(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    # `ctx` contains `ctx_a` and `ctx_b`; the official prompt repeats them
    context = " ".join([text(row, "ctx"), column_text(row, "ctx_a"), column_text(row, "ctx_b")])
    return DraftQuestion(context, texts(row, "endings", row.values["endings"], 4, 4), label(row, "label", "0123"))


HELLASWAG = DataSet(
    name="hellaswag",
    card=card_of("Rowan/hellaswag", "default", "218ec52e09a7e7462a5400043bb9a69a41d06b76", license="MIT"),
    columns=("ctx", "ctx_a", "ctx_b", "endings", "label"),
    read=_hellaswag,
    choice=PromptStyle(
        "The following are some context completions (with multiple-choice answers).",
        FOLLOWING,
        "Context:\n{text}\n\nChoices:\n{options}",
    ),
)


PIQA = DataSet(
    name="piqa",
    card=card_of(
        "ybisk/piqa", "plain_text", "142c51238b3ca2bc61e9a075913871b8b600e8e1", license="not stated", is_script=True
    ),
    columns=("goal", "sol1", "sol2", "label"),
    read=reader("goal", lambda row: (column_options(row, "sol1", "sol2"), label(row, "label", "01"))),
    choice=PromptStyle(
        "The following are questions with multiple-choice answers.", NEXT, "Goal:\n{text}\n\nChoices:\n{options}"
    ),
    open=PromptStyle(
        "The following are questions with answers.",
        NEXT,
        "Provide advice on how to accomplish the following goal.\nGoal: {text}",
    ),
    filter=keep_labels("label", (0, 1)),
)

BLANK = "_"
NO_BLANK = FilterVerdict(keep=False, why="sentences without a blank, left out")
NOT_ONE_BLANK = FilterVerdict(keep=False, why="sentences without exactly one blank, left out")


def _blanks(fits: Callable[[int], bool], why: FilterVerdict) -> Filter:
    """Build a filter of WinoGrande's rows by the number of blanks (`_`) in the sentence.

    The filter leaves out rows without a valid label as `UNLABELLED`. Of the others it keeps a row if `fits` is true of
    its number of blanks, or if the sentence is no text. On the rest its verdict is `why`.
    """

    def judge(row: Row) -> FilterVerdict:
        sentence = row.values["sentence"]
        if row.values["answer"] not in ("1", "2"):  # a tuple, as lists are not hashable
            return UNLABELLED
        return why if isinstance(sentence, str) and not fits(sentence.count(BLANK)) else KEEP

    return Filter(("sentence", "answer"), judge)


def _winogrande(row: Row, how: ReadOptions) -> DraftQuestion:
    sentence, options = text(row, "sentence"), column_options(row, "option1", "option2")
    filled = (sentence.replace(BLANK, options[0], 1), sentence.replace(BLANK, options[1], 1))
    return _two_options(sentence, filled, options, label(row, "answer", "12"), how)


_WINOGRANDE = DataSet(
    name="winogrande",
    card=card_of(
        "allenai/winogrande", "winogrande_xl", "01e74176c63542e6b0bcb004dcdea22d94fb67b5", license="not stated"
    ),
    columns=("sentence", "option1", "option2", "answer"),
    read=_winogrande,
    choice=PromptStyle(
        "The following are ambiguous sentences (with answer choices).",
        "Now, resolve the next ambiguity.",
        "Sentence:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are ambiguous sentences (with answers).",
        "Now, resolve the next ambiguity.",
        (
            'Fill in the blank "_" in the following sentence from the following choices. Respond with only "1" or "2"'
            " and no additional text.\nSentence: {text}\n  Choice 1: {first}\n  Choice 2: {second}"
        ),
    ),
    filter=_blanks(lambda count: count == 1, NOT_ONE_BLANK),
)
# the official code keeps sentences with two blanks and fills the first
WINOGRANDE = replace(_WINOGRANDE, published=replace(_WINOGRANDE, filter=_blanks(bool, NO_BLANK)))
