"""The traps of the 20 data sets: label codes, hidden labels, options in one text, filters, and rows that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import ContractError, Format, Row, UserError
from bench.api.protocol import Protocol
from tasks.ct import commonsense, entailment, knowledge
from tasks.ct.composer import CHOICE_SETS
from tasks.ct.data_set import DataSet, ReadOptions, SplitQuestions

PROTOCOL = Protocol()
SEED = PROTOCOL.exemplar_seed
BY_NAME = {each.name: each for each in CHOICE_SETS}


def kept(hub: SimpleNamespace, data_set: DataSet, fmt: Format, n: int = 3) -> SplitQuestions:
    path = f"{data_set.card.folder}/{data_set.card.splits['train']}"
    return SplitQuestions(hub.like({path: n}), data_set, "train", ReadOptions(fmt, SEED), {})


def read(hub: SimpleNamespace, name: str, i: int = 0, fmt: Format = Format.CHOICE, **changes: Any) -> Any:
    return BY_NAME[name].read(hub.row(name, i, **changes), ReadOptions(fmt, SEED))


def choices(texts: Any, labels: Any) -> dict[str, Any]:
    return {"text": texts, "label": labels}


@pytest.mark.parametrize(
    ("labels", "key", "gold"),
    [("ABCD", "D", 3), ("1234", "1", 0), ("1234", "4", 3), ("DCBA", "D", 0), ("ABC", "C", 2), ("ABCDE", " E", 4)],
)
def test_answer_key_is_looked_up_among_the_labels(hub: SimpleNamespace, labels: str, key: str, gold: int) -> None:
    options = [f"option {label}" for label in labels]
    item = read(hub, "arc", choices=choices(options, list(labels)), answerKey=key)
    assert item.gold == gold
    assert item.choices == tuple(options)


@pytest.mark.parametrize("wrapped", ["2", "2\n", "\n2", " 2 ", 2])
def test_label_of_siqa_may_be_wrapped(hub: SimpleNamespace, wrapped: object) -> None:
    assert read(hub, "siqa", label=wrapped).gold == 1


@pytest.mark.parametrize("data_set", [commonsense.WINOGRANDE, commonsense.WINOGRANDE.published])
def test_winogrande_leaves_out_labels_that_are_lists(hub: SimpleNamespace, data_set: DataSet) -> None:
    assert data_set.filter is not None
    assert not data_set.filter.judge(hub.row("winogrande", 0, answer=["1"])).keep


def test_options_of_sciq_are_permuted_by_the_place_among_the_kept_rows(hub: SimpleNamespace) -> None:
    questions = kept(hub, knowledge.SCIQ, Format.CHOICE, 200)  # row 3 repeats an option and is left out
    golds = set()
    for place, question in enumerate(questions):
        row = hub.rows["sciq"][int(question.id.rpartition("/")[2]) % 3]
        options = [row["distractor1"], row["distractor2"], row["distractor3"], row["correct_answer"]]
        order = np.random.default_rng(SEED + place).permutation(4)
        assert question.choices == tuple(options[i] for i in order)
        assert question.answer == row["correct_answer"]
        golds.add(question.gold)
    assert len(questions) == 199
    assert golds == {0, 1, 2, 3}


def test_hellaswag_has_no_open_format() -> None:
    with pytest.raises(ContractError, match="hellaswag"):
        commonsense.HELLASWAG.style(Format.OPEN)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("commonsense_qa", {"choices": None}),
        ("commonsense_qa", {"choices": {"label": []}}),
        ("commonsense_qa", {"choices": {"text": ["a", None]}}),
        ("siqa", {"answerA": ["x"]}),
        ("sciq", {"distractor1": None}),
        ("math_qa", {"options": None}),
        ("winogrande", {"sentence": None}),
    ],
)
def test_filters_leave_bad_rows_to_the_reader(hub: SimpleNamespace, name: str, changes: dict[str, Any]) -> None:
    row = hub.row(name, 0, **changes)
    judged = BY_NAME[name].filter
    assert judged is not None
    assert judged.judge(Row(0, row.where, {column: row.values[column] for column in judged.columns})).keep


# --- the options of MathQA --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "by_letters", "by_commas"),
    [
        ("a ) 1 , b ) 2 , c ) 3 , d ) 4 , e ) 5", ["1", "2", "3", "4", "5"], ["1", "2", "3", "4", "5"]),
        ("a ) 1,000 , b ) 2 , c ) 3 , d ) 4 , e ) 5", ["1,000", "2", "3", "4", "5"], ["1", "000", "2", "3", "4", "5"]),
        ("a ) ( x ) , b ) 2 ( y ) , c ) 3 , d ) 4 , e ) 5", ["( x )", "2 ( y )", *"345"], ["", "", *"345"]),
        ("a)1,b)2,c)3,d)4,e)5", ["1", "2", "3", "4", "5"], ["1", "2", "3", "4", "5"]),
        ("a ) 1 , 2 , b ) 3 , 4 , c ) 5 , d ) 6 , e ) 7", ["1 , 2", "3 , 4", "5", "6", "7"], list("1234567")),
        ("['a ) 1', 'b ) 2', 'c ) 3', 'd ) 4', 'e ) 5']", list("12345"), ["1'", "2'", "3'", "4'", "5']"]),
        ("a ) 1 , b ) 2 , c ) 3 , d ) 4", [], ["1", "2", "3", "4"]),
        ("a ) 1 , b ) 2 , b ) 3 , d ) 4 , e ) 5", [], ["1", "2", "3", "4", "5"]),
        ("a ) ( b , c ) , b ) 2 , c ) 3 , d ) 4 , e ) 5", ["( b , c )", *"2345"], ["( b", "", *"2345"]),
        ("a ) , b ) 2 , c ) 3 , d ) 4 , e )", ["", "2", "3", "4", ""], ["", "2", "3", "4", ""]),
        ("none", [], ["none"]),
        ("", [], [""]),
    ],
)  # fmt: skip
def test_options_of_math_qa(options: str, by_letters: list[str], by_commas: list[str]) -> None:
    assert knowledge.by_letters(options) == by_letters
    assert knowledge.by_commas(options) == by_commas


VALUE = st.text("0123456789,.()/ xy'", max_size=12).map(str.strip).filter(lambda value: not value.endswith(","))


@given(st.lists(VALUE, min_size=5, max_size=5), st.text("abcde ),0123[]'"))
def test_options_are_read_back_as_five_or_not_at_all(values: list[str], rest: str) -> None:
    options = " , ".join(f"{letter} ) {value}" for letter, value in zip("abcde", values, strict=True))
    assert knowledge.by_letters(options) == values
    assert len(knowledge.by_letters(rest)) in {0, 5}


@pytest.mark.parametrize(
    ("reader", "left", "counts"),
    [
        (
            knowledge.MATH_QA,
            [0, 1, 2, 4, 5, 6, 8],
            {
                "rows with two equal options, left out": 1,
                "rows whose options can't be read as five, left out": 1,
                "rows whose options the official code reads otherwise": 6,
            },
        ),
        (
            knowledge.MATH_QA.published,
            [0, 1, 2, 4, 6, 8],
            {
                "rows with two equal options, left out": 2,
                "rows whose right option is not among those that commas give, left out": 1,
                "rows whose options are not what their letters say": 5,
            },
        ),
    ],
)
def test_rows_that_the_two_readers_of_math_qa_take(
    hub: SimpleNamespace, reader: DataSet, left: list[int], counts: dict[str, int]
) -> None:
    counted: dict[str, int] = {}
    source = hub.like({"ct/math_qa/default/train": 9})
    questions = SplitQuestions(source, reader, "train", ReadOptions(Format.CHOICE, SEED), counted)
    assert [question.id for question in questions] == [f"ct/math_qa/train/{i}" for i in left]
    assert all(question.gold < len(question.choices) for question in questions)
    assert all(len(question.choices) == 5 for question in questions) == (reader is knowledge.MATH_QA)
    assert counted == {f"math_qa train: {what}": n for what, n in counts.items()}


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_rows_keep_their_numbers_and_are_counted(hub: SimpleNamespace) -> None:
    questions = kept(hub, commonsense.WINOGRANDE, Format.CHOICE, 9)
    assert [question.id for question in questions] == [f"ct/winogrande/train/{i}" for i in (0, 1, 2, 6, 7, 8)]
    assert questions[-1] == questions[5]
    assert [question.id for question in questions[1:4]] == [questions[i].id for i in (1, 2, 3)]
    for outside in (6, -7):
        with pytest.raises(IndexError):
            questions[outside]
    counts: dict[str, int] = {}
    questions = SplitQuestions(hub.like(), commonsense.WINOGRANDE, "train", ReadOptions(Format.CHOICE, SEED), counts)
    assert [len(questions), list(questions[:3]), len(questions)] == [40_395, list(questions[:3]), 40_395]
    assert counts == {
        "winogrande train: rows without a label, left out": 1,
        "winogrande train: sentences without exactly one blank, left out": 2,
    }


def test_rows_are_read_when_asked_for(hub: SimpleNamespace) -> None:
    source = hub.like()
    questions = SplitQuestions(source, entailment.SNLI, "train", ReadOptions(Format.CHOICE, SEED), {})
    assert questions[999].id == "ct/snli/train/1015"
    assert source.made("ct/snli/plain_text/train") == 1_016 + 1  # looked through, and read
    assert questions[0].id == "ct/snli/train/0"


def test_split_without_a_labelled_row_is_refused(hub: SimpleNamespace) -> None:
    source = hub.like({"ct/piqa/plain_text/train": 0})
    with pytest.raises(UserError, match="train split of piqa, but every row is left out"):
        len(SplitQuestions(source, commonsense.PIQA, "train", ReadOptions(Format.CHOICE, SEED), {}))
    unlabelled = hub.like({"ct/piqa/plain_text/train": 40})
    hidden = commonsense.keep_labels("label", ())
    data_set = DataSet(**{**vars(commonsense.PIQA), "filter": hidden})
    with pytest.raises(UserError, match=r"every row is left out \(rows without a label, left out\)"):
        list(SplitQuestions(unlabelled, data_set, "train", ReadOptions(Format.CHOICE, SEED), {}))


def test_error_names_the_data_set_and_the_row(hub: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hub.rows["copa"][1], "label", -1)
    questions = kept(hub, commonsense.COPA, Format.OPEN)
    assert questions[0].id == "ct/copa/train/0"
    with pytest.raises(UserError, match=r"^ct/super_glue/copa/train.parquet row 1 \(copa\): .*hidden"):
        questions[1]


@pytest.mark.parametrize("name", ["boolq", "cosmos_qa", "multirc", "siqa", "cb", "sciq"])
def test_questions_are_told_apart_by_their_passage(hub: SimpleNamespace, name: str) -> None:
    assert kept(hub, BY_NAME[name], Format.CHOICE)[0].parts
