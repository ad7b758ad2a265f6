"""Questions on a passage that is given: BoolQ, Cosmos QA, MultiRC and Social IQa.

A row of BoolQ: {"question": "can tin float", "passage": "Tin is ...", "answer": False}. MultiRC has one row for each
proposed answer, which is right or not. The labels of Social IQa are texts from "1" on, some with a newline around them.
"""

from __future__ import annotations

from bench.api import DataCard, PromptStyle, Row, UserError
from tasks.ct.data_set import FOLLOWING, NEXT, DataSet, DraftQuestion, ReadOptions, distinct, label, piece, pieces, text

ABOUT_CONTEXT = "Context:\n{context}\n\nQuestion:\n{text}\n\nChoices:\n{options}"
ABOUT_PARAGRAPH = "Read the following paragraph and answer the question.\nParagraph: {context}\nQuestion: {text}"


def _boolq(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    answer = row.values["answer"]
    if not isinstance(answer, bool):
        raise UserError(f"{row.where}: expected true or false in column 'answer', got {answer!r:.60}; correct the row")
    return DraftQuestion(text(row, "question"), ("False", "True"), int(answer), (("passage", piece(row, "passage")),))


BOOLQ = DataSet(
    name="boolq",
    card=DataCard(
        hub="google/boolq",
        config="default",
        revision="35b264d03638db9f4ce671b711558bf7ff0f80d5",
        folder="ct/boolq/default",
        license="CC-BY-SA-3.0",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=("question", "answer", "passage"),
    read=_boolq,
    choice=PromptStyle(
        header="The following are comprehension passages (with multiple-choice answers).",
        footer=FOLLOWING,
        context="Passage:\n{passage}\n\nQuestion:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        header="The following are comprehension passages (with answers).",
        footer=FOLLOWING,
        context=(
            'Read the following passage and answer the question. Respond with only "True" or "False" and no additional'
            " text.\nPassage: {passage}\nQuestion: {text}?"
        ),
    ),
)


def _cosmos(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    options = pieces(row, "answer0", "answer1", "answer2", "answer3")
    return DraftQuestion(
        text(row, "question"), options, label(row, "label", "0123"), (("context", piece(row, "context")),)
    )


COSMOS_QA = DataSet(
    name="cosmos_qa",
    card=DataCard(
        hub="allenai/cosmos_qa",
        config="default",
        revision="ed50fe83db62b355759053b1cd5eef344ee371e0",
        files="default/{split}/0000.parquet",
        folder="ct/cosmos_qa/default",
        license="CC-BY-4.0",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=("context", "question", "answer0", "answer1", "answer2", "answer3", "label"),
    read=_cosmos,
    choice=PromptStyle(
        header="The following are some contexts and questions (with multiple-choice answers).",
        footer=FOLLOWING,
        context=ABOUT_CONTEXT,
    ),
    open=PromptStyle(
        header="The following are some contexts and questions (with answers).",
        footer=FOLLOWING,
        context=ABOUT_PARAGRAPH,
    ),
)


def _multirc(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    parts = (("paragraph", piece(row, "paragraph")), ("answer", piece(row, "answer")))
    return DraftQuestion(text(row, "question"), ("No", "Yes"), label(row, "label", "01"), parts)


MULTIRC = DataSet(
    name="multirc",
    card=DataCard(
        hub="aps/super_glue",
        config="multirc",
        revision="3de24cf8022e94f4ee4b9d55a6f539891524d646",
        folder="ct/super_glue/multirc",
        license="research use",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=("paragraph", "question", "answer", "label"),
    read=_multirc,
    choice=PromptStyle(
        header="The following are reading comprehensions (with multiple-choice answers).",
        footer=FOLLOWING,
        context="Paragraph:\n{paragraph}\n\nQ: {text}\n\nA: {answer}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        header="The following are reading comprehensions (with answers).",
        footer=FOLLOWING,
        context=(
            "Read the following paragraph along with the question and answer. Then, respond with whether the answer is"
            ' correct. Respond with only "Yes" or "No" and no additional text.\nPassage: {paragraph}\nQuestion: {text}'
            "\nAnswer: {answer}. Is the answer correct?"
        ),
        target_prompt="\nResponse:",
    ),
)


def _siqa(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    options, gold = pieces(row, "answerA", "answerB", "answerC"), label(row, "label", "123")
    return DraftQuestion(text(row, "question"), options, gold, (("context", piece(row, "context")),))


SIQA = DataSet(
    name="siqa",
    card=DataCard(
        hub="allenai/social_i_qa",
        config="default",
        revision="537a2ec8ec565adc0b70b70752893e59e024df26",
        files="default/{split}/0000.parquet",
        folder="ct/social_i_qa/default",
        license="not stated",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=("context", "question", "answerA", "answerB", "answerC", "label"),
    read=_siqa,
    choice=PromptStyle(
        header="The following are social interaction questions with multiple-choice answers.",
        footer=NEXT,
        context=ABOUT_CONTEXT,
    ),
    open=PromptStyle(
        header="The following are social interaction questions with answers.",
        footer=NEXT,
        context=ABOUT_PARAGRAPH,
    ),
    filter=distinct("answerA", "answerB", "answerC"),
)
