"""Before anything is computed: which questions are read, what of them is left out, and which splits are given up."""

from __future__ import annotations

from dataclasses import replace
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
from bench.run.resolve import resolve
from bench.signals.grading import Grader
from bench.signals.split_data import SplitData

PLUGIN = '''"""A task whose validation rows can't be had, and a method that learns."""
from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Question, Task, TaskCard, UserError, method, task

SPLITS = ("train", "validation", "test")
LOST = True


@method("learner")
class Learner(ConfidenceMethod):
    "Learns."
    reference = "none"
    needs = Needs()

    def fit(self, train, ctx):
        raise NotImplementedError

    def predict(self, batch):
        raise NotImplementedError


@method("scorer")
class Scorer(ConfidenceMethod):
    "Gives scores."
    reference = "none"
    needs = Needs()
    output = "score"

    def predict(self, batch):
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
            raise UserError("its rows are lost")
        for i in range(self.card.sizes[split]):
            yield Question(f"{split}/{i}", "brooks", f"Where does brook {i} end?", ("Tove", "Kiru"), 0)

    def provenance(self, split):
        return {"made": split}
'''


class Opener:
    """A reader that writes no prompts."""

    def open(self, where: TaskSplit, task: Any, questions: Any, released: Any) -> SplitData:
        return SplitData(where, task, questions, [], released=released)


def prepared(
    folder: Path, *methods: str, lost: bool = True, splits: str = '("train", "validation", "test")', **options: Any
) -> PreparedRun:
    path = folder / "brooks.py"
    text = PLUGIN.replace("LOST = True", f"LOST = {lost}").replace('("train", "validation", "test")', splits)
    path.write_text(text, encoding="utf-8")
    resolved = resolve(RunConfig(methods or ("learner",), "tiny", tasks=("brooks",), plugins=(path,), **options))
    tasks = {name: cls(None, resolved.protocol) for name, cls in resolved.tasks.items()}  # type: ignore[arg-type]
    opener: Any = Opener()
    source: Any = SimpleNamespace(describe=lambda card, split: {})
    return prepare(resolved, Resources(source, tasks, opener, Grader(opener, MatchJudge())), {}, None)


def test_without_a_split_to_choose_steps_by_the_last_step_is_kept(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.notes == ("no step is chosen by brooks/validation, the last one is kept: its rows are lost",)
    assert found.selecting == frozenset()
    assert {str(step.where) for step in found.steps if isinstance(step, Read)} == {"brooks/train", "brooks/test"}
    assert set(map(str, found.data_by_split)) == {"brooks/train", "brooks/test"}


def test_a_split_that_is_needed_otherwise_is_not_done_without(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^its rows are lost$"):
        prepared(tmp_path, recalibrate=("isotonic",))


@pytest.mark.parametrize(
    ("overrides", "left_out", "what"),
    [
        ((), {"train/0", "train/1", "train/2"}, "left out"),
        (("protocol.drop_contaminated=false",), set(), "kept"),
    ],
)
def test_what_is_also_tested_is_counted_and_by_default_not_learned_from(
    tmp_path: Path, overrides: tuple[str, ...], left_out: set[str], what: str
) -> None:
    data_by_split = prepared(tmp_path, overrides=overrides).data_by_split
    learned, test = (data_by_split[TaskSplit("brooks", split)] for split in ("train", "test"))
    assert learned.left_out == left_out
    assert learned.counts == {f"questions that are also in brooks/test, {what}": 3}
    assert (test.left_out, test.counts) == (frozenset(), {})


def test_where_rows_come_from_is_asked_of_the_task(tmp_path: Path) -> None:
    origins = prepared(tmp_path).origins
    assert {str(where): found["made"] for where, found in origins.items()} == {
        "brooks/train": "train",
        "brooks/test": "test",
    }


@pytest.mark.parametrize("preset", ["fixed", "paper"])  # the latter chooses no steps by validation
def test_validation_is_read_to_scale_scores_and_done_without_where_it_is_lost(tmp_path: Path, preset: str) -> None:
    found = prepared(tmp_path, "scorer", lost=False, preset=preset)
    assert {str(step.where) for step in found.steps if isinstance(step, Read)} == {"brooks/validation", "brooks/test"}
    assert found.notes == ()
    found = prepared(tmp_path, "scorer", preset=preset)
    assert {str(step.where) for step in found.steps if isinstance(step, Read)} == {"brooks/test"}
    assert found.notes == (
        "no scores are scaled on brooks/validation, they have metrics of order alone: its rows are lost",
    )


def test_where_scores_are_scaled_elsewhere_their_settings_say_so(tmp_path: Path) -> None:
    path = tmp_path / "brooks.py"
    path.write_text(PLUGIN, encoding="utf-8")
    config = RunConfig(("scorer",), "tiny", tasks=("brooks",), plugins=(path,))
    assert resolve(config).config_of("scorer", "brooks") == {}
    elsewhere = resolve(replace(config, train_on="atlas-choice"))
    assert elsewhere.config_of("scorer", "brooks") == {"train_on": "atlas-choice:train"}
    assert set(elsewhere.tasks) == {"brooks", "atlas-choice"}


@pytest.mark.parametrize(("preset", "learned"), [("fixed", 9), ("paper", 10)])
def test_a_method_that_gives_scores_takes_no_training_rows_from_the_others(
    tmp_path: Path, preset: str, learned: int
) -> None:
    """Where validation rows are taken out of train, they stay there for those that choose no step by them."""
    splits = '("train", "test")'
    alone = prepared(tmp_path, "learner", splits=splits, preset=preset).data_by_split
    both = prepared(tmp_path, "learner", "scorer", splits=splits, preset=preset).data_by_split
    train, validation = TaskSplit("brooks", "train"), TaskSplit("brooks", "validation")
    assert len(both[train].questions) == learned
    assert [q.id for q in both[train].questions] == [q.id for q in alone[train].questions]
    assert len(both[validation].questions) == 1
