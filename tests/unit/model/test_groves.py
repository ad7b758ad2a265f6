"""Packs followed side by side give what each gives alone, in fewer passes; memory that runs out changes nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import At, Hidden, OutputHead, Samples, Signal, TokenScores
from bench.model import extractor
from bench.model.batch_planner import BatchPlanner
from bench.model.continuation_specs import ModelInput
from bench.model.devices import ALONE, BatchLimits
from bench.model.extractor import Extractor, ShardOutput
from bench.model.language_model import LanguageModel
from bench.model.prefix_tree import plan_packs
from bench.model.session import Session
from bench.model.token_sampling import uniform_numbers
from bench.signals.definition import pass_definitions
from tests.unit.model import test_backbone as plain

ROOM = 10**12
PAIRS, ALL = BatchLimits(3, ROOM), BatchLimits(1000, ROOM)
ATTENTIVE = [name for name in plain.ARCHITECTURES if name not in plain.UNSHARED]
SIGNALS: list[Signal] = [
    *plain.SIGNALS, Hidden(1.0, At.GOLD_PREDICTING), Hidden(0.5, At.WRONG_PREDICTING), TokenScores(top=3),
    Samples(5, 0.7),
]  # fmt: skip


@pytest.fixture(scope="module", params=plain.distinct(ATTENTIVE))
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return plain.loaded(request.param, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return plain.loaded("llama", tmp_path_factory.mktemp("llama"))


def ids(*rows: list[int]) -> list[np.ndarray]:
    return [np.asarray(row, dtype=np.int32) for row in rows]


ANSWERS = [[20, 21], [30], [40, 41, 42], [50], [60, 61], [70], [30]]


def items(limit: int, *, given: bool) -> list[ModelInput]:
    return plain.items(
        ids(*ANSWERS) if given else None,
        options=[4, 2, 3, 4, 4, 4, 2],
        gold=ids([20, 21], [30], [40, 41, 42], [50], [20], [60, 61], [30]),
        wrong=[tuple(ids([20, 22], [33, 34, 35]))] * 7,
        uniforms=[uniform_numbers(3, f"q{i}", 5, limit) for i in range(7)],
    )


def measured(
    lm: LanguageModel, together: BatchLimits, *, limit: int = 4, budget: int = 30, given: bool = False
) -> ShardOutput:
    """All signals, read from nothing."""
    lm.session.reset()
    asking = plain.prompt_settings(limit, budget)
    reads = Extractor(lm, asking, pass_definitions(SIGNALS), None, together)
    return reads.extract(items(limit, given=given))


def assert_same(found: ShardOutput, expected: ShardOutput, *, costs: bool = True) -> None:
    """Answers and samples are equal, numbers within 1e-5 of the largest, and as many tokens were read."""
    assert [a.tolist() for a in found.answers] == [a.tolist() for a in expected.answers]
    for signal, columns in expected.columns.items():
        for name, column in columns.items():
            there = found.columns[signal][name]
            if not column.dtype.is_floating_point:
                assert there.tolist() == column.tolist(), (signal, name)
                continue
            scale = float(column[column.isfinite()].abs().max())
            torch.testing.assert_close(there, column, atol=1e-5 * max(1, scale), rtol=0, equal_nan=True)
    if costs:
        for stage, cost in expected.costs.items():
            there = found.costs[stage]
            assert there.forward_tokens == cost.forward_tokens


# --- plans ------------------------------------------------------------------------------------------------------------


def prompts() -> list[np.ndarray]:
    """Three subjects with a beginning of 80 tokens each; six questions of 10 tokens in each."""
    rng = np.random.default_rng(0)
    shared = rng.integers(9, 100, (3, 80))
    return [np.asarray([*shared[i % 3], *rng.integers(9, 100, 10)], dtype=np.int32) for i in range(18)]


def sizes(decode_batches: BatchPlanner) -> list[list[int]]:
    return [[len(planned.rows) for planned in decode_batch] for decode_batch in decode_batches]


def test_packs_follow_each_other_until_there_are_enough_sequences_or_tokens() -> None:
    given = prompts()
    assert sizes(BatchPlanner(given, 30, ALONE, 1)) == [[3]] * 6
    assert sizes(BatchPlanner(given, 30, BatchLimits(4, ROOM), 1)) == [[3, 3]] * 3
    assert sizes(BatchPlanner(given, 30, BatchLimits(10, ROOM), 1)) == [[3] * 4, [3] * 2]
    assert sizes(BatchPlanner(given, 30, BatchLimits(100, ROOM), 1)) == [[3] * 6]
    # Two packs of one subject take 80 + 30 + 30 tokens of 8 bytes, three of two subjects take as many and 110.
    assert sizes(BatchPlanner(given, 30, BatchLimits(100, 8 * 140), 8)) == [[3, 3]] * 3
    assert sizes(BatchPlanner(given, 30, BatchLimits(100, 8 * 139), 8)) == [[3]] * 6
    assert sizes(BatchPlanner(given, 30, BatchLimits(100, 8 * 250), 8)) == [[3] * 3, [3] * 3]


def test_every_prompt_stands_in_one_pack_and_equal_ones_in_the_same() -> None:
    given = [*prompts(), *prompts()[:5]]
    for limits in (ALONE, BatchLimits(7, ROOM)):
        found = [planned for decode_batch in BatchPlanner(given, 45, limits, 1) for planned in decode_batch]
        assert sorted(row for planned in found for row in planned.rows) == list(range(len(given)))
        packs = plan_packs(prompts(), 45)
        assert [planned.pack.tokens.tolist() for planned in found] == [pack.tokens.tolist() for pack in packs]
        for planned in found:
            for row, leaf in zip(planned.rows, planned.leaves, strict=True):
                own = planned.pack.tokens[planned.pack.visible()[leaf]]
                assert [*planned.pack.shared, *own] == given[row].tolist()


def test_what_is_too_large_is_halved_down_to_one_prompt() -> None:
    decode_batches = BatchPlanner(prompts(), 60, ALL, 1)
    seen = []
    for decode_batch in decode_batches:
        seen.append([len(planned.rows) for planned in decode_batch])
        if sum(seen[-1]) > 1:
            assert decode_batches.halve(decode_batch)
        else:
            assert not decode_batches.halve(decode_batch)
    assert seen[:3] == [[6, 6, 6], [6], [3]]
    assert seen.count([1]) == 18


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "together", "given"), [pytest.param(1, PAIRS, True, marks=pytest.mark.slow), (30, ALL, False)]
)
def test_side_by_side_is_as_alone(lm: LanguageModel, budget: int, together: BatchLimits, *, given: bool) -> None:
    """Prompts of two beginnings are in one decode batch, two of them equal."""
    alone = measured(lm, ALONE, budget=budget, given=given)
    assert_same(measured(lm, together, budget=budget, given=given), alone)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("budget", [1, 30])
def test_so_it_is_whatever_is_planned(llama: LanguageModel, budget: int, *, given: bool) -> None:
    """Plans are made of prompts, and of no model: one has them all."""
    alone = measured(llama, ALONE, budget=budget, given=given)
    for together in (PAIRS, ALL):
        assert_same(measured(llama, together, budget=budget, given=given), alone)


@pytest.mark.parametrize("limit", [1, 4])
def test_side_by_side_is_as_plain_passes(lm: LanguageModel, limit: int) -> None:
    found = measured(lm, ALL, limit=limit)
    answers = [a.tolist() for a in found.answers]
    plain.assert_greedy(lm, answers, limit)
    chosen = {signal: found.columns[signal] for signal in plain.SIGNALS}
    chosen[plain.ChoiceLogits()] = {"values": measured_letters(lm, limit)}
    plain.check_against_plain(lm, ShardOutput(found.answers, chosen), answers)


def measured_letters(lm: LanguageModel, limit: int) -> torch.Tensor:
    """Logits of all letters, where each question shows them all."""
    signal = plain.ChoiceLogits()
    lm.session.reset()
    reads = Extractor(lm, plain.prompt_settings(limit, 30), pass_definitions([signal]), None, ALL)
    return reads.extract(plain.items()).columns[signal]["values"]


def test_a_step_of_decoding_advances_all_packs(llama: LanguageModel) -> None:
    assert llama.uses_packs  # which takes passes of its own
    passes: dict[str, list[int]] = {}
    forward = Session.forward

    def noted(kind: str) -> Callable[..., Any]:
        def once(self: Session, ids: Any, *rest: Any) -> Any:
            passes.setdefault(kind, []).append(len(ids))
            return forward(self, ids, *rest)

        return once

    for kind, together in (("alone", ALONE), ("all", ALL)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Session, "forward", noted(kind))
            measured(llama, together, given=True)
    assert sum(passes["alone"]) == sum(passes["all"])
    packs = sum(1 for _ in BatchPlanner(plain.prompts(), 30, ALONE, 1))
    assert packs == 3
    after = 1 + 1 + 3  # answers with queries, options, and three steps of samples
    assert len(passes["alone"]) - len(passes["all"]) == after * packs - after


def test_keys_of_packs_side_by_side_are_dropped_when_they_were_followed(llama: LanguageModel) -> None:
    rows, new_row = [], Session.new_row

    def noted(self: Session, *least: int) -> Any:
        row = new_row(self, *least)
        rows.append(weakref.ref(row))
        return row

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "new_row", noted)
        measured(llama, PAIRS)
    gc.collect()
    assert len(rows) >= 2  # the session's own when it is emptied, and that of two packs
    assert [row() is llama.session._main for row in rows if row() is not None] == [True]


def test_bytes_of_a_token_are_known_before_anything_is_read(lm: LanguageModel) -> None:
    fresh = Session(lm.model)
    size = fresh.measure_bytes_per_token()
    assert (fresh.tokens, fresh.length) == (0, 0)
    fresh = Session(lm.model)
    fresh.forward(np.arange(3), np.arange(3), lambda: torch.ones(3, 3, dtype=torch.bool), {})
    assert fresh.bytes_per_token == size > 0


# --- memory -----------------------------------------------------------------------------------------------------------


class RankDistribution:
    """Counts the places at which memory may run out, and lets it run out at one of them, once."""

    def __init__(self, patched: pytest.MonkeyPatch, fails: int) -> None:
        self.passed, self.fails = 0, fails
        for owner, name in (
            (Session, "forward"),
            (Session, "copy_to"),
            (OutputHead, "logits"),
            (extractor, "copy_to_host"),
        ):
            patched.setattr(owner, name, self._cramped(getattr(owner, name)))

    def _cramped(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.passed += 1
            if self.passed == self.fails:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return plain(*args, **kwargs)

        return call


def test_memory_that_runs_out_anywhere_changes_nothing(llama: LanguageModel) -> None:
    assert llama.uses_packs
    with pytest.MonkeyPatch.context() as patched:
        places = RankDistribution(patched, 0)
        calm = measured(llama, ALL, limit=2)
    assert calm.halvings == 0
    assert places.passed >= 15
    for fails in range(1, places.passed + 1):
        with pytest.MonkeyPatch.context() as patched:
            RankDistribution(patched, fails)
            halved = measured(llama, ALL, limit=2)
        assert halved.halvings == 1
        assert_same(halved, calm, costs=False)


@pytest.mark.parametrize("most", [120, 150, 180])
def test_a_grove_that_never_fits_is_halved_until_it_does(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    calm = measured(llama, ALL, limit=1)
    forward = Session.forward

    def cramped(self: Session, ids: Any, *rest: Any) -> Any:
        if self.length + len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, ids, *rest)

    monkeypatch.setattr(Session, "forward", cramped)
    halved = measured(llama, ALL, limit=1)
    assert halved.halvings > 0
    assert_same(halved, calm, costs=False)


def test_what_waits_to_be_sent_is_forgotten_with_the_pass_that_failed(llama: LanguageModel) -> None:
    session = Session(llama.model)
    kept = session.send(np.arange(3))
    session.reset()
    assert not session.sending._waiting
    assert kept.tensor.tolist() == [0, 1, 2]
