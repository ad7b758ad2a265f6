"""What is left out is counted: contaminated questions, undecided answers, and methods that can learn nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.grading.grade import JudgeCase
from bench.results.files import read_records
from bench.run import preparation

Command = Callable[..., "subprocess.CompletedProcess[str]"]

SHARED = '''"""A corpus that shares twelve questions with the rivers it is learned for, in other cases and spacings."""
import numpy as np

from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Question, Task, TaskCard, method, task


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


@task("leaky")
class Leaky(Task):
    "Rivers of the test set among others."
    format = Format.CHOICE
    card = TaskCard(
        license="MIT", version=1, why="none", options=(4, 4), splits={"train": "train"}, sizes={"train": 60},
    )
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}\\n{options}")

    def questions(self, split):
        self.counts["rows without a source"] = 2
        for i in range(60):
            name = f"river {i % 30}" if i < 12 else f"brook {i}"
            text = f"Where  does {name} END?" if i % 2 else f"Where does {name} end?"
            yield Question(f"leaky/{i}", "waters", text, ("Tove", "Kiru", "Bamo", "Lun"), i % 4)


@task("clean")
class Clean(Task):
    "Thirty rivers."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, why="none", options=(4, 4), splits={"test": "test"}, sizes={"test": 30})
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}\\n{options}")
    train_on = "leaky"

    def questions(self, split):
        for i in range(30):
            yield Question(f"clean/{i}", "rivers", f"Where does river {i} end?", ("Tove", "Kiru", "Bamo", "Lun"), i % 4)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "shared.py"
    path.write_text(SHARED, encoding="utf-8")
    return path


def run(bench: Command, model: Path, plugin: Path, folder: Path, *options: object) -> dict[str, Any]:
    result = bench(
        "run", "--method", "share", "--model", model, "--plugin", plugin, "--task", "clean", "--out", folder / "out",
        *options, env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = (folder / "out").rglob("share*.json")
    row: dict[str, Any] = json.loads(path.read_text())
    return row


def test_contaminated_questions_are_left_out_and_counted(
    bench: Command, small_model: Path, plugin: Path, tmp_path: Path
) -> None:
    row = run(bench, small_model, plugin, tmp_path, "--preset", "fixed")
    assert row["counts"] == {
        "leaky/train: questions that are also in clean/test, left out": 10,
        "leaky/train: rows without a source": 2,
        "leaky/validation: questions that are also in clean/test, left out": 2,
        "leaky/validation: rows without a source": 2,
    }
    assert row["labels_seen"]["train"] == 54 - 10  # a tenth of sixty rows is for validation
    assert row["n"] == 30


def test_paper_keeps_them_and_counts_them(bench: Command, small_model: Path, plugin: Path, tmp_path: Path) -> None:
    row = run(bench, small_model, plugin, tmp_path, "--preset", "paper")
    assert row["counts"]["leaky/train: questions that are also in clean/test, kept"] == 12
    assert row["labels_seen"]["train"] == 60


def test_they_are_compared_with_the_whole_test_set_also_in_a_partial_run(
    bench: Command, small_model: Path, plugin: Path, tmp_path: Path
) -> None:
    row = run(bench, small_model, plugin, tmp_path, "--preset", "fixed", "--limit", 4)
    assert row["labels_seen"]["train"] == 44
    assert row["n"] == 4


class Undecided:
    """A judge that knows two answers of three."""

    name = "undecided"

    def pairwise_judge(self) -> None:
        return None

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        del what, progress
        return [None if i % 3 == 2 else i % 3 == 0 for i in range(len(asked))]


def test_answers_without_a_verdict_are_neither_learned_from_nor_scored(
    bench: Command, small_model: Path, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "open_judge", lambda config, cache: Undecided())
    result = bench(
        "run", "--method", "share", "--model", small_model, "--plugin", plugin, "--task", "atlas-oe", "--limit", 30,
        "--set", "protocol.max_new_tokens_open=4", "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = (tmp_path / "out").rglob("share*.json")
    row = json.loads(path.read_text())
    assert (row["judge"], row["n"], row["n_undecided"]) == ("undecided", 20, 10)
    assert row["llm_accuracy"] == 0.5
    assert row["labels_seen"]["train"] == pytest.approx(320 * 2 / 3, abs=1)
    records = read_records(path.with_suffix(".parquet"))
    assert len(records.id) == len(records.confidence) == len(records.answer) == 20
    assert records.correct.sum() == 10


def test_a_method_that_can_learn_nothing_is_skipped_with_the_reason(
    bench: Command, small_model: Path, plugin: Path, tmp_path: Path
) -> None:
    """The random model names no letter: all its training answers are wrong."""
    result = bench(
        "run", "--method", "pik,share", "--set", "pik.steps=300",
        "--model", small_model, "--plugin", plugin, "--task", "clean", "--out",
        tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = (tmp_path / "out").rglob("pik*.json")
    row = json.loads(path.read_text())
    assert row["status"] == "skipped"
    assert "all 44 training answers are wrong" in row["reason"]
