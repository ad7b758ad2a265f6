"""Science and mathematics, and kinds of questions: ARC, OpenBookQA, SciQ, MathQA and TREC.

A row of ARC: {"question": "Which of these melts?", "choices": {"text": [...], "label": ["A", "B", "C", "D"]},
"answerKey": "B"}; some rows have 3 or 5 options, or the labels 1 to 4. SciQ has one column per option; its options
are shuffled. MathQA has all options in one text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.api import Format, PromptStyle, Row
from tasks.ct.data_set import (
    FOLLOWING,
    KEEP,
    LETTERED,
    NEXT,
    DataSet,
    DraftQuestion,
    Filter,
    FilterVerdict,
    Reader,
    ReadOptions,
    card_of,
    column_options,
    column_text,
    keep_differing,
    keep_distinct_columns,
    keyed,
    label,
    reader,
    text,
)

# --- ARC and OpenBookQA -----------------------------------------------------------------------------------------------


ARC = DataSet(
    name="arc",
    card=card_of("allenai/ai2_arc", "ARC-Easy", "210d026faf9955653af8916fad021475a3f00453", license="CC-BY-SA-4.0"),
    columns=("question", "choices", "answerKey"),
    read=reader("question", lambda row: keyed(row, 3, 5)),
    choice=PromptStyle("The following are questions (with multiple-choice answers).", FOLLOWING, LETTERED),
    open=PromptStyle("The following are questions (with answers).", FOLLOWING, "The question is: {text}"),
)

ARC_CHALLENGE = replace(
    ARC, name="arc_challenge", card=replace(ARC.card, config="ARC-Challenge", folder="ct/ai2_arc/ARC-Challenge")
)


OBQA = DataSet(
    name="obqa",
    card=card_of("allenai/openbookqa", "main", "388097ea7776314e93a529163e0fea805b8a6454", license="Apache-2.0"),
    columns=("question_stem", "choices", "answerKey"),
    read=reader("question_stem", lambda row: keyed(row, 4, 4)),
    choice=PromptStyle("The following are questions with multiple-choice answers.", NEXT, LETTERED),
    open=PromptStyle(
        "The following are questions with answers.",
        NEXT,
        "Provide your best answer for the following question.\nQuestion: {text}",
    ),
)

# --- SciQ -------------------------------------------------------------------------------------------------------------

SCIQ_OPTIONS = ("distractor1", "distractor2", "distractor3", "correct_answer")
"""Columns of SciQ's options, in the order that is then permuted at random. In the file `distractor3` comes first."""


def _sciq(row: Row, how: ReadOptions) -> DraftQuestion:
    options, order = column_options(row, *SCIQ_OPTIONS), np.random.default_rng(how.seed).permutation(4).tolist()
    support = column_text(row, "support")
    if support:  # an empty one leaves only a blank line above the lettered question
        support = f"Support:\n{support}\n" if how.format is Format.CHOICE else f"{support}\n"
    return DraftQuestion(
        text(row, "question"), tuple(options[i] for i in order), order.index(3), (("support", support),)
    )


SCIQ = DataSet(
    name="sciq",
    card=card_of("allenai/sciq", "default", "2c94ad3e1aafab77146f384e23536f97a4849815", license="CC-BY-NC-3.0"),
    columns=("question", *SCIQ_OPTIONS, "support"),
    read=_sciq,
    choice=PromptStyle(
        "The following are science exam questions with multiple-choice answers.",
        NEXT,
        "{support}\nQuestion:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are science exam questions with answers.",
        NEXT,
        "Read the following and answer the question.\n{support}Question: {text}",
    ),
    filter=keep_distinct_columns(*SCIQ_OPTIONS),
)

# --- MathQA -----------------------------------------------------------------------------------------------------------

MATH_OPTIONS = 5
ENTRIES = re.compile(",".join(rf"\s*['\"]?\s*{letter}\s*\)(.*?)" for letter in "abcde"), re.DOTALL)
"""Matches MathQA's five options, like `a ) 1,200 , b ) 38 ...`. A group is the text after a letter, up to the next
letter. In some rows the options are quoted and in a list."""

UNREADABLE = FilterVerdict(keep=False, why="rows whose options can't be read as five, left out")
NOT_AMONG = FilterVerdict(keep=False, why="rows whose right option is not among those that commas give, left out")
READ_OTHERWISE = FilterVerdict(keep=True, why="rows whose options the official code reads otherwise")
READ_AS_PUBLISHED = FilterVerdict(keep=True, why="rows whose options are not what their letters say")


def by_letters(options: str) -> list[str]:
    """Return MathQA's options, the text after each letter; an empty list if a letter from a to e is missing.

    >>> by_letters("a ) 1,200 , b ) ( 3 ) x , c ) 7 , d ) 0.5 , e ) none of these")
    ['1,200', '( 3 ) x', '7', '0.5', 'none of these']
    """
    body, strip_chars = options.strip(), " "
    if body.startswith("[") and body.endswith("]"):
        body, strip_chars = body[1:-1], " '\""
    match = ENTRIES.fullmatch(body)
    return [entry.strip().strip(strip_chars) for entry in match.groups()] if match else []


def by_commas(options: str) -> list[str]:
    """Return MathQA's options as in the official code: split at commas, of each part the text after its last bracket.

    >>> by_commas("a ) 1,200 , b ) ( 3 ) x")
    ['1', '200', 'x']
    """
    return [entry.rsplit(")", 1)[-1].strip() for entry in options.split(",")]


def _math(
    split: Callable[[str], list[str]], other: Callable[[str], list[str]], unfit: FilterVerdict, odd: FilterVerdict
) -> tuple[Reader, Filter]:
    """Build a reader of MathQA that splits the text of the options by `split`, and a filter for this reader.

    The filter gives the verdict `unfit` on rows that are not split into five options; if `unfit` is `NOT_AMONG`, only
    on rows whose right option is not among those found. It leaves out rows with two equal options as `REPEATED`, and
    gives the verdict `odd` on other rows that `other` splits differently. Splitting at commas makes more than five
    options if options have commas in numbers; the official code keeps such rows.
    """

    def judge(row: Row) -> FilterVerdict:
        options = row.values["options"]
        if not isinstance(options, str):
            return KEEP
        read = split(options)
        right = "abcde".find(str(row.values["correct"]).strip())
        if right >= len(read) if unfit is NOT_AMONG else len(read) != MATH_OPTIONS:
            return unfit
        verdict = keep_differing(read)
        return odd if verdict.keep and read != other(options) else verdict

    read = reader("Problem", lambda row: (tuple(split(column_text(row, "options"))), label(row, "correct", "abcde")))
    return read, Filter(("options", "correct"), judge)


_READ, _FILTER = _math(by_letters, by_commas, UNREADABLE, READ_OTHERWISE)
_READ_PUBLISHED, _FILTER_PUBLISHED = _math(by_commas, by_letters, NOT_AMONG, READ_AS_PUBLISHED)
_MATH_QA = DataSet(
    name="math_qa",
    card=card_of(
        "allenai/math_qa", "default", "fafb9f7ee5b9ec4da9499f9c4177a4c91389f2d6", license="Apache-2.0", is_script=True
    ),
    columns=("Problem", "options", "correct"),
    read=_READ,
    choice=PromptStyle(
        "The following are math questions (with multiple-choice answers).",
        NEXT,
        "Problem:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are math questions (with answers).",
        NEXT,
        "Provide your best answer for the following math problem.\nProblem: {text}",
    ),
    filter=_FILTER,
)
MATH_QA = replace(_MATH_QA, published=replace(_MATH_QA, read=_READ_PUBLISHED, filter=_FILTER_PUBLISHED))

# --- TREC -------------------------------------------------------------------------------------------------------------

KINDS = (
    "Abbreviation", "Entity", "Description and abstract concept", "Human being", "Location", "Numeric value",
)  # fmt: skip
"""Names of TREC's kinds of questions in the order of `coarse_label`: ABBR, ENTY, DESC, HUM, LOC, NUM. The older column
`label-coarse` has another order."""


TREC = DataSet(
    name="trec",
    card=card_of(
        "CogComp/trec",
        "default",
        "65752bf53af25bc935a0dce92fb5b6c930728450",
        license="not stated",
        is_script=True,
        splits={"train": "train"},
    ),
    columns=("text", "coarse_label"),
    read=reader("text", lambda row: (KINDS, label(row, "coarse_label", "012345"))),
    choice=PromptStyle("The following are questions with multiple-choice answers.", NEXT, LETTERED),
    open=PromptStyle(
        "The following are questions with answers.",
        NEXT,
        (
            "Read the following question and then pick a category that describes the question.\nQuestion: {text}\n"
            f"What category is the question in? Choose one from {', '.join(KINDS)}. Respond with only the category and"
            " no additional text."
        ),
        gap="",  # docs/methods.md §1.4: no line of its own after this footer
    ),
)
