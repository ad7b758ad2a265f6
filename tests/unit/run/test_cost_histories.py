"""Costs are counted as one run from nothing feeds them: equal to what such a run feeds, whatever was stored before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.api import (
    At,
    Followup,
    Format,
    Hidden,
    Of,
    QueryLogits,
    Question,
    SampleAgreement,
    Samples,
    Signal,
    Split,
    Task,
    TokenScores,
)
from bench.api.protocol import FIXED
from bench.api.question import Released
from bench.data.splits import TaskSplit
from bench.grading.grade import MatchJudge
from bench.model import extractor
from bench.model.cost import StageTokens
from bench.model.devices import BatchLimits
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.run.costs import compute_costs
from bench.run.pipeline import RunConfig, run
from bench.signals import reader as reading_room
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.unit.run.test_costs import FewRivers, OpenRivers, prefixes

DRAWN = Samples(3, 0.8)
SAID = ("The answer is b", "b", "", "a river")
LONG = ("a river of the north " * 24, "b", "", "the hills and the rivers " * 20)
ASKED: dict[str, frozenset[Signal]] = {
    "query": frozenset({QueryLogits(), Hidden(1.0, At.ANSWER_PREDICTING)}),
    "samples": frozenset({SampleAgreement(3, 0.8)}),
    "scored samples": frozenset({TokenScores(Of.SAMPLES, samples=DRAWN), SampleAgreement(2)}),
    "ends of samples": frozenset({Hidden(1.0, At.SAMPLE_END, samples=DRAWN)}),
    "options": frozenset({Hidden(1.0, At.WRONG_PREDICTING), Hidden(1.0, At.GOLD_PREDICTING)}),
    "prompts": frozenset({Hidden(1.0, At.PROMPT_END)}),
    "replies": frozenset({Followup("How sure are you?", say=3), Followup(say=2)}),
}
TASKS = pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
FEW = pytest.mark.parametrize("said", [(), SAID], ids=["generated", "given"])
GIVEN = pytest.mark.parametrize("said", [(), SAID, LONG], ids=["generated", "given", "long"])


@dataclass
class Model:
    """A model in this process, whose session starts anew with each store."""

    lm: LanguageModel
    folder: Path
    stores: int = 0

    def reader(self, seed: int = 0) -> Reader:
        """A reader with an empty store and nothing in memory."""
        self.stores += 1
        self.lm.session.reset()
        return self.again(Store(self.folder / str(self.stores)), seed)

    def again(self, store: Store, seed: int = 0) -> Reader:
        """A reader with a store."""
        store.prepare()
        protocol = replace(FIXED, max_new_tokens_open=4)
        return Reader(self.lm, store, protocol, 96, Silent(), seed=seed)


def opened(reader: Reader, task: type[Task], said: tuple[str, ...] = (), split: Split = "test") -> SplitData:
    made = task(None)  # type: ignore[arg-type]
    questions = list(made.questions(split))
    released = {
        question.id: Released(None, said[i % len(said)], correct=i % 3 == 0)
        for i, question in enumerate(questions if said else [])
    }
    return reader.open(TaskSplit(task.name, split), made, questions, released)


def read(
    reader: Reader, task: type[Task], signals: Iterable[Signal], said: tuple[str, ...] = (), split: Split = "test"
) -> SplitData:
    return Grader(reader, MatchJudge()).grade(reader.read(opened(reader, task, said, split), frozenset(signals)))


def fed(*data_by_split: SplitData) -> Counter[str]:
    """Stage -> tokens that the passes of these readings fed, as they were counted by the session."""
    found: Counter[str] = Counter()
    for entry in (entry for split_data in data_by_split for shard in split_data.bundles for entry in shard):
        found += Counter({stage: cost["forward_tokens"] for stage, cost in entry.manifest["costs"].items()})
    return found


def forward(costs: dict[str, StageTokens]) -> Counter[str]:
    assert all(0 <= c.forward_tokens_floor <= c.forward_tokens == c.padded_tokens for c in costs.values())
    return +Counter({stage: cost.forward_tokens for stage, cost in costs.items()})


@pytest.fixture(scope="module")
def model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    spec = ModelSpec("small", str(small_model), local=True)
    return Model(LanguageModel(spec, LoadOptions(device="cpu")), tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def plain_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that reads each question alone."""
    spec = ModelSpec("small", str(small_model), local=True)
    return Model(LanguageModel(spec, LoadOptions(device="cpu", plain=True)), tmp_path_factory.mktemp("plain"))


EVERYTHING = frozenset(signal for signals in ASKED.values() for signal in signals)


# --- counted as they were fed -----------------------------------------------------------------------------------------


@TASKS
@GIVEN
def test_the_count_is_what_a_run_from_nothing_feeds(model: Model, task: type[Task], said: tuple[str, ...]) -> None:
    for case, signals in {**(ASKED if said != LONG else {}), "everything": EVERYTHING}.items():
        reader = model.reader()
        split_data = read(reader, task, signals, said)
        assert forward(compute_costs([split_data], reader)) == +fed(split_data) != Counter(), case


@TASKS
@FEW
def test_so_it_is_where_each_sequence_is_read_alone(
    plain_model: Model, task: type[Task], said: tuple[str, ...]
) -> None:
    for signals in (ASKED["samples"], EVERYTHING):
        reader = plain_model.reader()
        split_data = read(reader, task, signals, said)
        assert not plain_model.lm.uses_packs
        assert forward(compute_costs([split_data], reader)) == +fed(split_data) != Counter()


@TASKS
@GIVEN
def test_so_it_is_where_packs_are_followed_side_by_side(
    model: Model, monkeypatch: pytest.MonkeyPatch, task: type[Task], said: tuple[str, ...]
) -> None:
    for together in (BatchLimits(3, 10**9), BatchLimits(100, 40_000)) if said else [BatchLimits(100, 10**9)]:
        for room in (extractor, reading_room):
            monkeypatch.setattr(room, "default_batch_limits", lambda *_, limits=together: limits)
        reader = model.reader()
        split_data = read(reader, task, EVERYTHING, said)
        assert forward(compute_costs([split_data], reader)) == +fed(split_data)


def test_long_answers_that_are_read_back_part_a_pack(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that rule the count is another, so the tests above hold the count to it."""
    reader = model.reader()
    split_data = read(reader, OpenRivers, ASKED["query"], LONG)
    before = compute_costs([split_data], reader)
    monkeypatch.setattr(extractor, "_LONG", 10**6)
    assert compute_costs([split_data], reader) != before


@TASKS
@GIVEN
def test_so_it_is_where_the_query_does_not_continue_the_prompt(
    model: Model, plain_model: Model, monkeypatch: pytest.MonkeyPatch, task: type[Task], said: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Reader, "_continues", lambda *_: False)
    for one in (model, plain_model) if said != LONG else [model]:  # where nothing is packed, nothing is too long for it
        reader = one.reader()
        split_data = read(reader, task, EVERYTHING, said)
        assert forward(compute_costs([split_data], reader)) == +fed(split_data)


class Elsewhere(FewRivers):
    """Other questions in each split, with the same exemplars."""

    def questions(self, split: Split) -> Iterator[Question]:
        yield from (replace(q, text=f"{q.text} on a map of {split}") for q in super().questions(split))


class OpenElsewhere(Elsewhere):
    """The same, asked openly."""

    name = "rivers-elsewhere-oe"
    format = Format.OPEN


@pytest.mark.parametrize("task", [Elsewhere, OpenElsewhere])
def test_so_it_is_over_several_splits_that_begin_alike(model: Model, task: type[Task]) -> None:
    """Given answers before generated ones: what is in memory then was read for another stage."""
    splits: tuple[Split, Split] = ("test", "train")
    for given in ((), ("test",), ("train",)):
        reader = model.reader()
        both = [read(reader, task, EVERYTHING, SAID if split in given else (), split) for split in splits]
        alone = [read(model.reader(), task, EVERYTHING, SAID if split in given else (), split) for split in splits]
        assert forward(compute_costs(both, reader)) == +fed(*both)
        assert sum(fed(*both).values()) < sum(fed(*alone).values())  # exemplars were read once


# --- whatever was stored before ---------------------------------------------------------------------------------------


@TASKS
@FEW
def test_no_order_of_earlier_runs_changes_a_cost(model: Model, task: type[Task], said: tuple[str, ...]) -> None:
    cases = ("query", "scored samples", "options")
    wanted = {**{case: ASKED[case] for case in cases}, "all": frozenset().union(*(ASKED[case] for case in cases))}
    expected = {}
    for name, signals in wanted.items():
        reader = model.reader()
        expected[name] = compute_costs([read(reader, task, signals, said)], reader)
    assert len({tuple(sorted(forward(costs).items())) for costs in expected.values()}) > 1
    several = False
    for order in ((*cases, "all"), (*cases[::-1], "all"), ("all", *cases), ("replies", "scored samples", "query")):
        reader = model.reader()
        for name in order:
            split_data = read(reader, task, {**ASKED, **wanted}[name], said)
            assert name not in expected or compute_costs([split_data], reader) == expected[name], (order, name)
            several |= any(len(shard) > 1 for shard in split_data.bundles)
    assert several  # else all lay in one entry, and nothing was tried


def test_a_run_that_computes_nothing_counts_the_same(model: Model) -> None:
    reader = model.reader()
    split_data = read(reader, OpenRivers, EVERYTHING)
    later = model.again(reader.store)
    assert compute_costs([read(later, OpenRivers, EVERYTHING)], later) == compute_costs([split_data], reader)
    assert (later.forward_tokens, reader.forward_tokens > 0) == (0, True)


def test_samples_of_a_second_seed_cost_what_they_would_alone(model: Model) -> None:
    first = model.reader()
    read(first, OpenRivers, ASKED["samples"])
    second, alone = model.again(first.store, seed=1), model.reader(seed=1)
    found = compute_costs([read(second, OpenRivers, ASKED["samples"])], second)
    assert second.forward_tokens > 0
    assert found == compute_costs([read(alone, OpenRivers, ASKED["samples"])], alone)


@TASKS
def test_the_floors_of_given_and_generated_answers_together_are_all_distinct_prefixes(
    model: Model, task: type[Task]
) -> None:
    reader = model.reader()
    given = read(reader, task, {QueryLogits()}, ("b", "a river", "c"))
    own = read(reader, task, {QueryLogits()}, (), "train")
    suffix = reader.prompt_settings(given).suffix.tolist()
    expected = prefixes(
        [[*prompt, *answer, *suffix] for one in (given, own) for prompt, answer in one.pairs() if len(answer)]
        + [[*prompt] for prompt, _ in own.pairs()]
    )
    floors = [cost.forward_tokens_floor for cost in compute_costs([given, own], reader).values()]
    assert sum(floors) == len(expected)


def test_rows_of_methods_one_by_one_together_and_in_other_orders_have_one_cost(tmp_path: Path) -> None:
    """A cell's cost is of the request that wrote it; what else the cache holds, and in which order, is not in it."""

    def costs(cache: str, *methods: str) -> dict[str, dict[str, StageTokens]]:
        folders = {"out": tmp_path / "out" / cache / "-".join(methods), "cache": tmp_path / cache}
        report = run(RunConfig(methods, "tiny", tasks=("atlas-oe",), limit=6, **folders))
        assert {row.status for row in report.rows} == {"ok"}
        return {row.method: dict(row.cost) for row in report.rows if row.method in methods}

    ptrue, samples, both = costs("1", "ptrue"), costs("1", "self-consistency"), costs("1", "ptrue", "self-consistency")
    assert (*ptrue.values(),) != (*samples.values(),) != (both["self-consistency"],)
    assert both["ptrue"] == both["self-consistency"]  # of one run's readings, which are those of all its methods
    assert costs("2", "self-consistency", "ptrue") == both
    assert costs("2", "self-consistency") == samples
    assert costs("2", "ptrue") == ptrue
