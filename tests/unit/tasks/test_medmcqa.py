"""MedMCQA: which rows are its exemplars, what happens without them, and all real rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bench.api import DataCard, Question, Row, Source, Split, UserError
from bench.data.sources import FolderSource
from bench.testing import MakeTask
from bench.testing.task_checks import check_letters, check_prompts
from tasks.medmcqa import MULTIS, SUBJECTS, MedMCQAChoice, MedMCQAOpen

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
BOTH = pytest.mark.parametrize("plugin", [MedMCQAChoice, MedMCQAOpen])


class Listed(Source):
    """Rows of a train and a validation split, given as (choice_type, cop)."""

    def __init__(self, train: Sequence[tuple[str, int]] | None, test: Sequence[tuple[str, int]] = ()) -> None:
        self._kinds = {"dev": train, "test": test}

    def has(self, card: DataCard, split: Split) -> bool:
        return self._kinds[split] is not None

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> list[Row]:
        found = self._kinds[split]
        assert found is not None, "read although it is not there"
        return [Row(i, f"{split} row {i}", self._row(f"{split}-{i}", *kind)) for i, kind in enumerate(found)]

    @staticmethod
    def _row(name: str, kind: str, cop: int) -> dict[str, Any]:
        options = {"opa": "w", "opb": "x", "opc": "y", "opd": "z"}
        subject = SUBJECTS[len(name) % len(SUBJECTS)]
        return {"id": name, "question": name, **options, "cop": cop, "choice_type": kind, "subject_name": subject}


def _shown(train: Sequence[tuple[str, int]]) -> list[int]:
    return [int(question.id.split("-")[-1]) for question in MedMCQAChoice(Listed(train)).questions("dev")]


def _single(*cops: int) -> list[tuple[str, int]]:
    return [("single", cop) for cop in cops]


# --- exemplars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (_single(0, 1, 2, 3, 0, 1), [0, 1, 2, 3, 4]),
        (_single(0, 0, 0, 1, 2, 3, 3), [0, 1, 3, 4, 5]),  # one of the three repeats, the first, fills up to five
        (_single(3, 2, 1, 0, 3), [0, 1, 2, 3, 4]),
        ([("multi", 0), *_single(1, 1), ("multi", 2), *_single(2, 0, 3)], [1, 2, 4, 5, 6]),
        ([*_single(0, 1, 2), ("multi", 3), ("multi", 3), *_single(3, 2)], [0, 1, 2, 5, 6]),
        ([*_single(0, 1, 2, 3, 0), ("neither", -1)], [0, 1, 2, 3, 4]),  # what comes after is not looked at
    ],
)
def test_exemplars_cover_the_right_options_in_the_files_order(
    train: list[tuple[str, int]], expected: list[int]
) -> None:
    assert _shown(train) == expected


@given(st.lists(st.tuples(st.sampled_from(["single", "multi"]), st.integers(0, 3)), max_size=40))
def test_exemplars_follow_their_definition(train: list[tuple[str, int]]) -> None:
    singles = [i for i, (kind, _) in enumerate(train) if kind == "single"]
    firsts = {min(i for i in singles if train[i][1] == cop) for cop in {train[i][1] for i in singles}}
    rest = [i for i in singles if i not in firsts]
    if len(firsts) == 4 and rest:
        assert _shown(train) == sorted([*firsts, rest[0]])
    else:
        with pytest.raises(UserError, match=f"^medmcqa/train: .*got {len(singles)} rows for {len(firsts)} options"):
            _shown(train)


@BOTH
def test_exemplars_are_the_same_for_every_subject(plugin: type[MedMCQAChoice]) -> None:
    task = plugin(Listed(_single(0, 1, 1, 2, 3)))
    pools = task.pools()
    assert set(pools) == set(SUBJECTS)
    assert {tuple(question.id for question in pool) for pool in pools.values()} == {
        tuple(f"medmcqa/dev-{i}" for i in range(5))
    }
    assert {question.gold for question in pools["Skin"]} == {0, 1, 2, 3}
    assert task.counts == {}


@BOTH
def test_exemplars_need_a_train_file(plugin: type[MedMCQAChoice]) -> None:
    task = plugin(Listed(None, _single(0, 1)))
    assert task.pools() == {}
    assert [question.gold for question in task.questions("test")] == [0, 1]


def test_rows_of_type_multi_are_kept_and_counted_once() -> None:
    task = MedMCQAChoice(Listed(_single(0, 1, 1, 2, 3), [("multi", 0), ("single", 1), ("multi", 3)]))
    for _ in range(2):
        assert [question.id for question in task.questions("test")] == [f"medmcqa/test-{i}" for i in range(3)]
        task.pools()
        assert task.counts == {MULTIS: 2}


# --- all real rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source() -> FolderSource:
    if not (DATA / "medmcqa" / "validation.parquet").is_file():
        pytest.skip("../shared/data/medmcqa is absent")
    return FolderSource(DATA)


@BOTH
def test_real_rows_are_all_read_as_they_stand(source: FolderSource, plugin: type[MedMCQAChoice]) -> None:
    rows = parquet.read_table(DATA / "medmcqa" / "validation.parquet").to_pylist()
    task = plugin(source)
    questions: list[Question] = list(task.questions("test"))
    assert len(questions) == plugin.card.sizes["test"] == 4_183
    assert [q.id for q in questions] == [f"medmcqa/{row['id']}" for row in rows]
    assert len({q.id for q in questions}) == len(questions)
    assert [q.gold for q in questions] == [row["cop"] for row in rows]
    assert {q.gold for q in questions} == {0, 1, 2, 3}
    assert [q.choices for q in questions] == [(r["opa"], r["opb"], r["opc"], r["opd"]) for r in rows]
    assert sorted(Counter(q.subject for q in questions)) == sorted(SUBJECTS)
    assert len(SUBJECTS) == 21
    assert task.counts == {MULTIS: sum(row["choice_type"] == "multi" for row in rows)} == {MULTIS: 1_367}


@BOTH
def test_real_prompts_are_built_as_they_must_be(source: FolderSource, plugin: type[MedMCQAChoice]) -> None:
    make = MakeTask(plugin, source)
    check_letters(make)
    check_prompts(make)
