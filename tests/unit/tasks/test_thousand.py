"""Tasks of one thousand: which rows they have, that the committed rows are those drawn, and what changed rows do."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench import registry
from bench.api import Question, Task, UserError
from bench.data.contamination import contaminated_ids, normalise_wording
from bench.data.sources import FolderSource
from benchmarks import thousand as drawing
from tasks import thousand
from tasks.medmcqa import SUBJECTS
from tasks.mmlu_pro import MMLUProChoice
from tasks.thousand import (
    SIZES,
    MedMCQAHoldoutChoice,
    MedMCQAThousandChoice,
    MMLUHoldoutChoice,
    MMLUProHoldoutChoice,
    MMLUProThousandChoice,
    MMLUThousandChoice,
    MMLUThousandOpen,
    Thousand,
)

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
PAIRS: dict[str, tuple[type[Thousand], type[Thousand]]] = {
    "mmlu": (MMLUThousandChoice, MMLUHoldoutChoice),
    "mmlu_pro": (MMLUProThousandChoice, MMLUProHoldoutChoice),
    "medmcqa": (MedMCQAThousandChoice, MedMCQAHoldoutChoice),
}
FOLDERS = pytest.mark.parametrize("folder", PAIRS)


@pytest.mark.parametrize(("folder", "parts"), thousand.digests_of_rows().items())
def test_committed_rows_are_each_in_one_part(folder: str, parts: dict[str, dict[str, str]]) -> None:
    sizes = {**SIZES, "dev": 5} if folder == "medmcqa" else SIZES
    assert {part: len(rows) for part, rows in parts.items()} == sizes
    assert len({key for rows in parts.values() for key in rows}) == sum(sizes.values())


@pytest.mark.parametrize(("_", "holdout"), PAIRS.values())
def test_holdout_learns_where_its_fellow_does(_: type[Task], holdout: type[Task]) -> None:
    home = registry.tasks().get(holdout.train_on)
    assert not home.train_on
    assert holdout.name == home.name.replace("1k", "1k-holdout")
    assert "train" in home.card.splits
    assert set(holdout.card.splits) == {"test", "dev"}


# --- what may be drawn ------------------------------------------------------------------------------------------------


def _question(text: str, *choices: str, number: int = 0) -> Question:
    return Question(f"mmlu/test/{number}", "law", text, choices or ("a", "b", "c", "d"), 0)


@pytest.mark.parametrize(
    "texts",
    [
        ("Skeletal muscles", " Skeletal\n MUSCLES "),  # equal to the check for contamination, too
        ("Skeletal muscles", "Skeletal muscles:-"),
        ("The frequency of A, B and O", "Thefrequency of A, B andO"),
        ("Find x²", "Find x2"),
    ],
)
def test_copies_are_not_drawn(texts: tuple[str, str]) -> None:
    other = _question("Which nerve?", number=2)
    copies = [_question(texts[0]), _question(texts[1], "d", "c", "b", "a", number=1)]
    assert drawing.eligible([*copies, other], ()) == [other]
    assert drawing.eligible([copies[0], other], {drawing.wording(texts[1])}) == [other]


def test_rows_with_equal_options_are_not_drawn() -> None:
    assert drawing.eligible([_question("Who?", "x  y", "x y ", "z", "w")], ()) == []
    kept = _question("Who?", "Aa", "AA", "aa", "aA")  # genotypes differ in case alone
    assert drawing.eligible([kept], ()) == [kept]


# --- rows that changed ------------------------------------------------------------------------------------------------

ROW = {"question": "Which nerve?", "subject": "anatomy", "choices": ["ulnar", "vagus", "radial", "median"], "answer": 1}


def _write(folder: Path, name: str, rows: list[dict[str, Any]]) -> FolderSource:
    (folder / name).parent.mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / name)
    return FolderSource(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: [rows[0], {**rows[1], "answer": 2}], "e.g. row '1' (got 'Which nerve?')"),
        (lambda rows: [rows[0], {**rows[1], "question": "Which bone?"}], "e.g. row '1' (got 'Which bone?')"),
        (lambda rows: [rows[0], {**rows[1], "choices": ROW["choices"][::-1]}], "differ in subject, text, options or"),
        (lambda rows: rows[::-1], "e.g. row '1' (got 'Which vein?')"),
        (lambda rows: rows[:1], "e.g. row '1' (it is not there)"),
        (lambda rows: [rows[0], {**rows[1], "answer": 4}], "row 1: expected an answer index from 0 to 3"),
    ],
)  # fmt: skip
def test_a_changed_row_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    named: str,
) -> None:
    rows = [{**ROW, "question": "Which vein?"}, ROW]
    asked = Question("mmlu/test/1", "anatomy", "Which nerve?", ("ulnar", "vagus", "radial", "median"), 1)
    monkeypatch.setattr(thousand, "digests_of_rows", lambda: {"mmlu": {"test": {"1": thousand.digest(asked)}}})
    assert list(MMLUThousandChoice(_write(tmp_path, "mmlu/test.parquet", rows)).questions("test")) == [asked]
    with pytest.raises(UserError) as refused:
        list(MMLUThousandChoice(_write(tmp_path, "mmlu/test.parquet", change(rows))).questions("test"))
    assert named in str(refused.value)
    assert str(refused.value).startswith("mmlu/test")


def test_rows_with_ids_may_come_in_another_order_and_with_other_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question_id": n, "question": f"Which of {n}?", "options": [" a", "b", "c"], "answer": "A",
             "answer_index": 0, "category": "law"} for n in (70, 71, 72)]  # fmt: skip
    first = list(MMLUProChoice(_write(tmp_path, "mmlu_pro/test.parquet", rows)).questions("test"))
    drawn = {thousand.row_key(question): thousand.digest(question) for question in first[:2]}
    monkeypatch.setattr(thousand, "digests_of_rows", lambda: {"mmlu_pro": {"test": drawn}})
    changed = [{**row, "options": ["a", "b ", "c"]} for row in rows[::-1]]
    task = MMLUProThousandChoice(_write(tmp_path, "mmlu_pro/test.parquet", changed))
    assert list(task.questions("test")) == [first[1], first[0]]


# --- all real rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source() -> FolderSource:
    if not all((DATA / folder).is_dir() for folder in PAIRS):
        pytest.skip("../shared/data is absent: which rows are drawn was not checked")
    return FolderSource(DATA)


@pytest.fixture(scope="module")
def parts(source: FolderSource) -> dict[str, dict[str, list[Question]]]:
    """Folder of the benchmark -> part -> questions, `dev` included."""
    real: dict[str, dict[str, list[Question]]] = {}
    for folder, (plugin, holdout) in PAIRS.items():
        task = plugin(source)
        real[folder] = {split: list(task.questions(split)) for split in ("test", "train", "validation", "dev")}
        real[folder]["holdout"] = list(holdout(source).questions("test"))
    return real


def _wordings(questions: list[Question]) -> set[str]:
    return {normalise_wording(question.text) for question in questions}


def test_committed_rows_are_those_drawn(source: FolderSource) -> None:
    assert drawing.to_toml(drawing.draw_all(source)) == drawing.PATH.read_text(encoding="utf-8")


@FOLDERS
def test_parts_share_no_wording(parts: dict[str, dict[str, list[Question]]], source: FolderSource, folder: str) -> None:
    for one, other in combinations(parts[folder].values(), 2):
        assert contaminated_ids(one, other) == set()
    whole = Counter(normalise_wording(q.text) for q in PAIRS[folder][0].whole(source).questions("test"))
    for part, size in SIZES.items():
        questions = parts[folder][part]
        assert len(_wordings(questions)) == len(questions) == size
        assert {whole[wording] for wording in _wordings(questions)} == {1}


def test_mmlu_is_divided_evenly(parts: dict[str, dict[str, list[Question]]], source: FolderSource) -> None:
    subjects = {part: Counter(q.subject for q in questions) for part, questions in parts["mmlu"].items()}
    assert set(subjects["test"].values()) == {20}
    assert set(subjects["holdout"].values()) == {10}
    assert set(subjects["train"].values()) == {17, 18}
    assert set(subjects["validation"].values()) == {4, 5}
    assert len(subjects["test"]) == len(subjects["validation"]) == 57
    for split in ("test", "train", "validation"):
        assert list(MMLUThousandOpen(source).questions(split)) == parts["mmlu"][split]


def test_mmlu_pro_has_no_row_drawn_for_mmlu(parts: dict[str, dict[str, list[Question]]]) -> None:
    mmlu, pro = parts["mmlu"], parts["mmlu_pro"]
    for part in SIZES:
        assert not any(contaminated_ids(pro[part], mmlu[other]) for other in mmlu)
        subjects = Counter(question.subject for question in pro[part])
        assert len(subjects) == 14
        assert max(subjects.values()) - min(subjects.values()) <= 1
    assert "mmlu-pro/3983" not in {q.id for part in SIZES for q in pro[part]}, "its two right answers disagree"


def test_medmcqa_is_divided_by_size(parts: dict[str, dict[str, list[Question]]], tmp_path: Path) -> None:
    rows = parquet.read_table(DATA / "medmcqa" / "validation.parquet").to_pylist()
    sizes = Counter(row["subject_name"] for row in rows if row["subject_name"] != "Unknown")
    for part, size in SIZES.items():
        drawn = Counter(question.subject for question in parts["medmcqa"][part])
        assert set(drawn) == set(sizes) == set(SUBJECTS) - {"Unknown"}
        assert all(abs(drawn[subject] - size * n / sum(sizes.values())) < 1 for subject, n in sizes.items())


def test_medmcqa_shows_the_same_exemplars_with_and_without_a_train_file(
    parts: dict[str, dict[str, list[Question]]], tmp_path: Path
) -> None:
    rows = parquet.read_table(DATA / "medmcqa" / "validation.parquet").to_pylist()
    single = {f"medmcqa/{row['id']}" for row in rows if row["choice_type"] == "single"}
    dev = parts["medmcqa"]["dev"]
    assert {question.gold for question in dev} == {0, 1, 2, 3}
    assert {question.id for question in dev} <= single
    (tmp_path / "medmcqa").mkdir()
    for name in ("validation", "train"):
        shutil.copyfile(DATA / "medmcqa" / "validation.parquet", tmp_path / "medmcqa" / f"{name}.parquet")
    for plugin in PAIRS["medmcqa"]:
        pools = plugin(FolderSource(tmp_path)).pools()
        assert all(list(pool) == dev for pool in pools.values())
        assert set(pools) >= {question.subject for question in parts["medmcqa"]["test"]}
