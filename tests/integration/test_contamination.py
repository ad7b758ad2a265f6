"""What is left out is counted: contaminated questions, and undecided answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.grading.grade import JudgeCase
from bench.run import preparation
from tests.kit.place import Place

SHARED = '''"""A corpus that shares twelve questions with the rivers it is learned for, in other cases and spacings."""
import numpy as np

from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Question, Task, TaskCard, method, task

NAMES = ("Tove", "Kiru", "Bamo", "Lun")


@method("share")
class Share(ConfidenceMethod):
    "The share of right answers that it learned from."
    reference = "none"
    needs = Needs()
    takes_one_class = True  # a random model names no letter: all its answers are wrong

    def fit(self, train, ctx):
        self.share_ = float(train.correct.mean())
        return self

    def predict(self, batch):
        return np.full(len(batch), self.share_)


class Waters(Task):
    "Where waters end."
    format = Format.CHOICE
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}\\n{options}")


def card(split, n):
    return TaskCard(license="MIT", version=1, why="none", options=(4, 4), splits={split: split}, sizes={split: n})


@task("leaky")
class Leaky(Waters):
    "Rivers of the test set among others."
    card = card("train", 60)

    def questions(self, split):
        self.counts["rows without a source"] = 2
        for i in range(60):
            name = f"river {i % 30}" if i < 12 else f"brook {i}"
            text = f"Where  does {name} END?" if i % 2 else f"Where does {name} end?"
            yield Question(f"leaky/{i}", "waters", text, NAMES, i % 4)


@task("clean")
class Clean(Waters):
    "Thirty rivers."
    card = card("test", 30)
    train_on = "leaky"

    def questions(self, split):
        for i in range(30):
            yield Question(f"clean/{i}", "rivers", f"Where does river {i} end?", NAMES, i % 4)
'''


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, here=True)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Place(tmp_path_factory.mktemp("plugin")).write("shared.py", SHARED)


def test_contaminated_questions_are_those_of_the_whole_test(place: Place, small_model: Path, plugin: Path) -> None:
    """Also with --limit; a tenth of sixty is for validation."""
    asked = ("--method", "share", "--model", small_model, "--plugin", plugin, "--task", "clean")
    place.run(*asked, "--preset", "fixed", "--limit", 4)
    row, told = place.row(), {"train": 10, "validation": 2}
    shared = {f"leaky/{split}: questions that are also in clean/test, left out": n for split, n in told.items()}
    assert row["counts"] == shared | {f"leaky/{split}: rows without a source": 2 for split in told}
    assert (row["labels_seen"]["train"], row["n"]) == (54 - 10, 4)


class Undecided:
    """A judge that knows two answers of three."""

    name = "undecided"

    def pairwise_judge(self) -> None:
        return None

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        del what, progress
        return [None if i % 3 == 2 else i % 3 == 0 for i in range(len(asked))]


def test_answers_without_a_verdict_are_not_used(
    place: Place, small_model: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "open_judge", lambda config, cache: Undecided())
    asked = ("--method", "share", "--plugin", plugin, "--task", "atlas-oe", "--limit", 30, "--train-limit", "320+9")
    place.run(*asked, "--model", small_model, "--set", "protocol.max_new_tokens_open=4")
    row, records = place.row(), place.records("share")
    assert (row["judge"], row["n"], row["n_undecided"]) == ("undecided", 20, 10)
    assert row["llm_accuracy"] == 0.5
    assert row["labels_seen"]["train"] == pytest.approx(320 * 2 / 3, abs=1)
    assert len(records.id) == len(records.confidence) == len(records.answer) == 20
    assert records.correct.sum() == 10
