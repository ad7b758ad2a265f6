"""Before anything is computed: which questions are read, what of them is left out, and which splits are given up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.api import UserError
from bench.data.splits import TaskSplit
from bench.grading.grade import MatchJudge
from bench.run.config import RunConfig
from bench.run.plan import Read
from bench.run.preparation import PreparedRun, Resources, prepare
from bench.run.resolve import ResolvedRun, resolve
from bench.signals.grading import Grader
from bench.signals.split_data import SplitData

PLUGIN = '''"""A task whose validation rows can't be had, and a method that learns."""
from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Question, Task, TaskCard, UserError, method, task
from bench.api.errors import AbsentError

SPLITS = ("train", "validation", "test")
LOST = True


@method("scorer")
class Scorer(ConfidenceMethod):
    "Gives scores."
    reference = "none"
    needs = Needs()
    output = "score"

    def predict(self, batch):
        raise NotImplementedError


@method("learner")
class Learner(Scorer):
    "Learns."
    reference = "none"
    output = "probability"

    def fit(self, train, ctx):
        raise NotImplementedError


@task("brooks")
class Brooks(Task):
    "Ten brooks to learn, of which three are tested."
    format = Format.CHOICE
    card = TaskCard(
        license="MIT", version=1, why="none", options=(2, 2), splits={s: s for s in SPLITS},
        sizes={s: {"train": 10, "validation": 1, "test": 3}[s] for s in SPLITS},
    )
    style = PromptStyle(header="", footer="", context="{text}")

    def questions(self, split):
        if split == "validation" and LOST:
            raise AbsentError("its rows are lost")
        for i in range(self.card.sizes[split]):
            number = 9 if split == "validation" else i
            yield Question(f"{split}/{i}", "brooks", f"Where does brook {number} end?", ("Tove", "Kiru"), 0)

    def provenance(self, split):
        return {"made": split}
'''
TRAIN, VALIDATION, TEST = (TaskSplit("brooks", split) for split in ("train", "validation", "test"))


class Opener:
    """A reader that writes no prompts."""

    def open(self, where: TaskSplit, task: Any, questions: Any, released: Any) -> SplitData:
        return SplitData(where, task, questions, [], released=released)


def resolved(folder: Path, *methods: str, text: str = PLUGIN, **options: Any) -> ResolvedRun:
    (folder / "brooks.py").write_text(text, encoding="utf-8")
    plugins = (folder / "brooks.py",)
    return resolve(RunConfig(methods or ("learner",), "tiny", tasks=("brooks",), plugins=plugins, **options))


def prepared(
    folder: Path,
    *methods: str,
    lost: bool = True,
    without_validation: bool = False,
    error: str = "AbsentError",
    **options: Any,
) -> PreparedRun:
    text = PLUGIN.replace("LOST = True", f"LOST = {lost}").replace("raise AbsentError", f"raise {error}")
    if without_validation:
        text = text.replace('("train", "validation", "test")', '("train", "test")')
    run = resolved(folder, *methods, text=text, **options)
    tasks = {name: cls(None, run.protocol) for name, cls in run.tasks.items()}  # type: ignore[arg-type]
    opener: Any = Opener()
    source: Any = SimpleNamespace(describe=lambda card, split: {})
    return prepare(run, Resources(source, tasks, opener, Grader(opener, MatchJudge())), {}, None)


def read(run: PreparedRun) -> set[TaskSplit]:
    return {step.where for step in run.steps if isinstance(step, Read)}


def test_validation_that_is_lost_chooses_no_step(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.notes == ("no step is chosen by brooks/validation, the last one is kept: its rows are lost",)
    assert found.selecting == frozenset()
    assert read(found) == set(found.data_by_split) == {TRAIN, TEST}
    assert {where: origin["made"] for where, origin in found.origins.items()} == {TRAIN: "train", TEST: "test"}


@pytest.mark.parametrize("method", ["learner", "scorer"])
@pytest.mark.parametrize("error", ["UserError", "RuntimeError"])  # e.g. the Hub can't be reached, or a disk is full
def test_validation_unreadable_for_now_is_not_done_without(tmp_path: Path, method: str, error: str) -> None:
    with pytest.raises(UserError, match="its rows are lost"):
        prepared(tmp_path, method, error=error)


def test_validation_that_is_needed_is_not_done_without(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^its rows are lost$"):
        prepared(tmp_path, recalibrate=("isotonic",))


@pytest.mark.parametrize("preset", ["fixed", "paper"])  # the latter chooses no steps by validation
@pytest.mark.parametrize(
    ("lost", "splits", "notes"),
    [
        (False, {VALIDATION, TEST}, ()),
        (
            True,
            {TEST},
            ("no scores are scaled on brooks/validation, they have metrics of order alone: its rows are lost",),
        ),
    ],
)
def test_validation_is_read_to_scale_scores(
    tmp_path: Path, preset: str, lost: bool, splits: set[TaskSplit], notes: tuple[str, ...]
) -> None:
    found = prepared(tmp_path, "scorer", lost=lost, preset=preset)
    assert (read(found), found.notes) == (splits, notes)


@pytest.mark.parametrize("preset", ["fixed", "paper"])  # the latter chooses no step by validation
@pytest.mark.parametrize("other", ["scorer", "lts"])
def test_training_rows_are_the_same_beside_other_methods(tmp_path: Path, preset: str, other: str) -> None:
    """Validation rows that come from train are no training rows, whoever reads them."""
    alone, both = (
        prepared(tmp_path, *methods, without_validation=True, preset=preset).data_by_split
        for methods in (["learner"], ["learner", other])
    )
    assert len(both[TRAIN].questions) == 9
    assert [q.id for q in both[TRAIN].questions] == [q.id for q in alone[TRAIN].questions]
    assert len(both[VALIDATION].questions) == 1


@pytest.mark.parametrize(
    ("overrides", "left_out", "what"),
    [
        ((), {"train/0", "train/1", "train/2"}, "left out"),
        (("protocol.drop_contaminated=false",), set(), "kept"),
    ],
)
def test_tested_questions_are_not_learned_from(
    tmp_path: Path, overrides: tuple[str, ...], left_out: set[str], what: str
) -> None:
    data_by_split = prepared(tmp_path, overrides=overrides).data_by_split
    learned, test = data_by_split[TRAIN], data_by_split[TEST]
    assert learned.left_out == left_out
    assert learned.counts == {f"questions that are also in brooks/test, {what}": 3}
    assert (test.left_out, test.counts) == (frozenset(), {})


def test_validation_questions_are_not_learned_from(tmp_path: Path) -> None:
    """But where no step is chosen by them, train stays as it is."""
    chosen, last = (
        prepared(tmp_path, "learner", "scorer", lost=False, preset=p).data_by_split for p in ("fixed", "paper")
    )
    left_out = [f"questions that are also in brooks/{split}, left out" for split in ("test", "validation")]
    assert chosen[TRAIN].counts == dict(zip(left_out, (3, 1), strict=True))
    assert chosen[TRAIN].left_out == {"train/0", "train/1", "train/2", "train/9"}
    assert (chosen[VALIDATION].left_out, chosen[VALIDATION].counts) == (frozenset(), {})
    assert (last[TRAIN].left_out, last[TRAIN].counts) == (
        frozenset(),
        {"questions that are also in brooks/test, kept": 3},
    )


def test_scores_scaled_elsewhere_have_settings_that_say_so(tmp_path: Path) -> None:
    assert resolved(tmp_path, "scorer").config_of("scorer", "brooks") == {}
    elsewhere = resolved(tmp_path, "scorer", train_on="atlas-choice")
    assert elsewhere.config_of("scorer", "brooks") == {"train_on": "atlas-choice:train"}
    assert set(elsewhere.tasks) == {"brooks", "atlas-choice"}


def test_labels_of_a_recalibration_are_those_asked_for(tmp_path: Path) -> None:
    """Also where the method itself reads none, so that results of two corpora have two names."""
    one = resolved(tmp_path, "ptrue", train_on="atlas-choice", train_limit="20", recalibrate=("isotonic",))
    assert one.config_of("ptrue", "brooks") == {}
    assert one.labels_of("brooks") == {"train_on": "atlas-choice:train", "train_limit": "20"}
    assert resolved(tmp_path, "ptrue").labels_of("brooks") == {}
