"""Reading comprehension: BoolQ, Cosmos QA, MultiRC and Social IQa.

A row of BoolQ: {"question": "can tin float", "passage": "Tin is ...", "answer": False}. MultiRC has one row for each
proposed answer, labelled right or wrong. The labels of Social IQa are the texts "1", "2" and "3", some with a newline
before or after.
"""

from __future__ import annotations

from bench.api import PromptStyle, Row, UserError
from tasks.ct.data_set import FOLLOWING, NEXT, DataSet, card_of, column_options, keep_distinct_columns, label, reader

ABOUT_CONTEXT = "Context:\n{context}\n\nQuestion:\n{text}\n\nChoices:\n{options}"
ABOUT_PARAGRAPH = "Read the following paragraph and answer the question.\nParagraph: {context}\nQuestion: {text}"


def _true_or_false(row: Row) -> tuple[tuple[str, ...], int]:
    answer = row.values["answer"]
    if not isinstance(answer, bool):
        raise UserError(f"{row.where}: expected true or false in column 'answer', got {answer!r:.60}; correct the row")
    return ("False", "True"), int(answer)


BOOLQ = DataSet(
    name="boolq",
    card=card_of("google/boolq", "default", "35b264d03638db9f4ce671b711558bf7ff0f80d5", license="CC-BY-SA-3.0"),
    columns=("question", "answer", "passage"),
    read=reader("question", _true_or_false, "passage"),
    choice=PromptStyle(
        "The following are comprehension passages (with multiple-choice answers).",
        FOLLOWING,
        "Passage:\n{passage}\n\nQuestion:\n{text}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are comprehension passages (with answers).",
        FOLLOWING,
        (
            'Read the following passage and answer the question. Respond with only "True" or "False" and no additional'
            " text.\nPassage: {passage}\nQuestion: {text}?"
        ),
    ),
)


COSMOS_QA = DataSet(
    name="cosmos_qa",
    card=card_of(
        "allenai/cosmos_qa", "default", "ed50fe83db62b355759053b1cd5eef344ee371e0", license="CC-BY-4.0", is_script=True
    ),
    columns=("context", "question", "answer0", "answer1", "answer2", "answer3", "label"),
    read=reader(
        "question",
        lambda row: (column_options(row, "answer0", "answer1", "answer2", "answer3"), label(row, "label", "0123")),
        "context",
    ),
    choice=PromptStyle(
        "The following are some contexts and questions (with multiple-choice answers).", FOLLOWING, ABOUT_CONTEXT
    ),
    open=PromptStyle("The following are some contexts and questions (with answers).", FOLLOWING, ABOUT_PARAGRAPH),
)


MULTIRC = DataSet(
    name="multirc",
    card=card_of("aps/super_glue", "multirc", "3de24cf8022e94f4ee4b9d55a6f539891524d646", license="research use"),
    columns=("paragraph", "question", "answer", "label"),
    read=reader("question", lambda row: (("No", "Yes"), label(row, "label", "01")), "paragraph", "answer"),
    choice=PromptStyle(
        "The following are reading comprehensions (with multiple-choice answers).",
        FOLLOWING,
        "Paragraph:\n{paragraph}\n\nQ: {text}\n\nA: {answer}\n\nChoices:\n{options}",
    ),
    open=PromptStyle(
        "The following are reading comprehensions (with answers).",
        FOLLOWING,
        (
            "Read the following paragraph along with the question and answer. Then, respond with whether the answer is"
            ' correct. Respond with only "Yes" or "No" and no additional text.\nPassage: {paragraph}\nQuestion: {text}'
            "\nAnswer: {answer}. Is the answer correct?"
        ),
        target_prompt="\nResponse:",
    ),
)


SIQA = DataSet(
    name="siqa",
    card=card_of(
        "allenai/social_i_qa",
        "default",
        "537a2ec8ec565adc0b70b70752893e59e024df26",
        license="not stated",
        is_script=True,
    ),
    columns=("context", "question", "answerA", "answerB", "answerC", "label"),
    read=reader(
        "question",
        lambda row: (column_options(row, "answerA", "answerB", "answerC"), label(row, "label", "123")),
        "context",
    ),
    choice=PromptStyle(
        "The following are social interaction questions with multiple-choice answers.", NEXT, ABOUT_CONTEXT
    ),
    open=PromptStyle("The following are social interaction questions with answers.", NEXT, ABOUT_PARAGRAPH),
    filter=keep_distinct_columns("answerA", "answerB", "answerC"),
)
