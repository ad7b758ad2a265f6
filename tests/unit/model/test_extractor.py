"""The extractor reads each token once, packs side by side as alone, and memory that runs out changes nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers.integrations import sdpa_attention
from transformers.integrations.sdpa_attention import repeat_kv

from bench.api import (
    At,
    AttentionRows,
    ChoiceLogits,
    Followup,
    Hidden,
    OutputHead,
    QueryLogits,
    Samples,
    Signal,
    TokenScores,
    UserError,
)
from bench.model import extractor
from bench.model.batch_planner import BatchPlanner
from bench.model.continuation_specs import ModelInput
from bench.model.continuation_tree import ContinuationTree
from bench.model.devices import ALONE, BatchLimits
from bench.model.extractor import Extractor, ShardOutput
from bench.model.language_model import LanguageModel
from bench.model.prefix_tree import plan_packs
from bench.model.session import Session
from bench.model.token_sampling import uniform_numbers
from bench.signals.definition import pass_definitions
from tests.kit import passes
from tests.kit.passes import SUFFIX, items, prefixes

ROOM = 10**12
PAIRS, ALL = BatchLimits(3, ROOM), BatchLimits(1000, ROOM)
SIGNALS: list[Signal] = [
    Hidden(1.0, At.PROMPT_END), Hidden(0.75, At.ANSWER_PREDICTING), Hidden(0.5, At.ANSWER_END), ChoiceLogits(),
    QueryLogits(), Hidden(1.0, At.GOLD_PREDICTING), Hidden(0.5, At.WRONG_PREDICTING), TokenScores(top=3),
    Samples(5, 0.7), AttentionRows(),
]  # fmt: skip
ANSWERS = [[20, 21], [30], [40, 41, 42], [50], [60, 61], [70], [30]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    found = passes.load(passes.save(tmp_path_factory.mktemp("model") / "llama"))
    assert found.uses_packs  # which takes passes of its own
    return found


def measured(
    lm: LanguageModel, together: BatchLimits, *, limit: int = 4, budget: int = 30, given: bool = False
) -> ShardOutput:
    """All signals, read from nothing."""
    asked = items(
        ANSWERS if given else None, options=[4, 2, 3, 4, 4, 4, 2], gold=passes.ids(*ANSWERS),
        wrong=[tuple(passes.ids([20, 22], [33, 34, 35]))] * 7,
        uniforms=[uniform_numbers(3, f"q{i}", 5, limit) for i in range(7)],
    )  # fmt: skip
    return passes.extract(lm, SIGNALS, asked, limit, budget, together)


def fed(found: ShardOutput) -> int:
    return sum(cost.forward_tokens for cost in found.costs.values())


def assert_same(found: ShardOutput, expected: ShardOutput) -> None:
    """Answers and samples are equal, and numbers within 1e-5 of the largest."""
    assert [a.tolist() for a in found.answers] == [a.tolist() for a in expected.answers]
    for signal, columns in expected.columns.items():
        for name, column in columns.items():
            there = found.columns[signal][name]
            if not column.dtype.is_floating_point:
                assert there.tolist() == column.tolist(), (signal, name)
                continue
            scale = float(column[column.isfinite()].abs().max())
            torch.testing.assert_close(there, column, atol=1e-5 * max(1, scale), rtol=0, equal_nan=True)


# --- costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 6])
def test_tokens_are_read_once(llama: LanguageModel, limit: int) -> None:
    signals: list[Signal] = [Hidden(1.0, At.ANSWER_END), QueryLogits()]
    found = passes.extract(llama, signals, items(), limit, 10_000)
    pairs = [(prompt, answer) for prompt, answer in zip(passes.prompts(), found.answers, strict=True)]
    generated = prefixes([*prompt, *(answer[: limit - 1])] for prompt, answer in pairs)
    assert found.costs["answers"].forward_tokens == len(generated)
    whole = prefixes([*prompt, *answer, *SUFFIX] for prompt, answer in pairs)
    assert fed(found) == len(generated | whole)
    with_scores = passes.extract(llama, [*signals, TokenScores(top=3)], items(), limit, 10_000)
    assert fed(with_scores) == fed(found)
    nothing, scores = (passes.extract(llama, each, items(), limit) for each in ([], [TokenScores(top=3)]))
    assert fed(nothing) == fed(scores)


@pytest.mark.parametrize("n_empty", [1, 7])
def test_empty_answers_are_not_read_for_query(llama: LanguageModel, n_empty: int) -> None:
    said = [[] if i < n_empty else [20] for i in range(7)]
    found = passes.extract(llama, [QueryLogits(), TokenScores(top=2)], items(said), 1)
    assert found.columns[QueryLogits()]["values"].isnan().all(1).tolist() == [not answer for answer in said]
    assert fed(found) == len(prefixes([*p, 20, *SUFFIX] for p in passes.prompts()[n_empty:]))


def test_samples_of_letters_need_no_further_pass(llama: LanguageModel) -> None:
    numbers = [uniform_numbers(0, f"q{i}", 10, 1) for i in range(7)]
    found = passes.extract(llama, [Samples()], items(uniforms=numbers), 1)
    assert found.costs["samples"].forward_tokens == 0


def test_samples_that_begin_alike_are_read_once(llama: LanguageModel) -> None:
    numbers = [uniform_numbers(0, f"q{i}", 10, 6) for i in range(7)]
    signal = Samples(10, 0.05)  # nearly greedy: most samples are the answer itself
    found = passes.extract(llama, [signal], items(uniforms=numbers), 6, 10_000)
    sequences = [
        [*prompt, *text[:5]]
        for i, prompt in enumerate(passes.prompts())
        for text in [*passes.texts_of(found.columns[signal], i), found.answers[i].tolist()]
    ]
    assert fed(found) == len(prefixes([*sequences, *passes.prompts()]))


def test_exemplars_of_another_split_are_kept_bitwise(llama: LanguageModel) -> None:
    rng = np.random.default_rng(1)
    exemplars = [rng.integers(9, passes.VOCABULARY, 100) for _ in range(2)]

    def split() -> list[ModelInput]:
        tails = rng.integers(9, passes.VOCABULARY, (6, 12))
        return [ModelInput(ids, 4) for ids in passes.ids(*([*exemplars[i % 2], *tails[i]] for i in range(6)))]

    first, second = split(), split()
    signals = SIGNALS[:5]
    fresh = passes.extract(llama, signals, second, 1, 4096)
    passes.extract(llama, signals, first, 1, 4096)
    after = Extractor(llama, passes.prompt_settings(1, 4096), pass_definitions(signals)).extract(second)
    assert fresh.costs["answers"].forward_tokens - after.costs["answers"].forward_tokens == 2 * 100
    for signal in signals:
        assert torch.equal(fresh.columns[signal]["values"], after.columns[signal]["values"])


def test_turns_grow_right_after_their_answer(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Last bits depend on the order within a pass, and with them results that are there."""
    rows: list[list[int]] = []
    read = ContinuationTree.read

    def noted(self: ContinuationTree, *blocks: Any, **more: Any) -> None:
        rows.append(list(self.tokens))
        read(self, *blocks, **more)

    monkeypatch.setattr(ContinuationTree, "read", noted)
    asked = [QueryLogits(), Followup(passes.HOW, words=passes.WORDS)]
    passes.extract(llama, asked, items([[113 + i] for i in range(7)]), 6)
    grown = [token for row in rows for token in row if token >= 0]
    assert grown[(first := grown.index(113)) : first + 8] == [113, *SUFFIX, *passes.TURN]


def test_states_keep_half_precision(tmp_path: Any) -> None:
    lm, signal = passes.load(passes.save(tmp_path), dtype="bfloat16"), Hidden(1.0, At.PROMPT_END)
    assert passes.extract(lm, [signal], items(), 1).columns[signal]["values"].dtype == torch.bfloat16


def test_grouped_heads_read_the_same_bits_without_copies(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, copies = passes.load(passes.save(tmp_path), dtype="bfloat16"), []
    assert lm.uses_packs  # its probes read plainly

    def noted(states: torch.Tensor, n: int) -> torch.Tensor:
        copies.append(n)
        return repeat_kv(states, n)

    monkeypatch.setattr(sdpa_attention, "repeat_kv", noted)
    grouped = passes.extract(lm, SIGNALS[:5], items(), 1, 4096)
    assert not copies
    monkeypatch.setattr(sdpa_attention, "use_gqa_in_sdpa", lambda *_: False)
    copied = passes.extract(lm, SIGNALS[:5], items(), 1, 4096)
    assert copies
    for signal in SIGNALS[:5]:
        assert torch.equal(grouped.columns[signal]["values"], copied.columns[signal]["values"])


# --- plans ------------------------------------------------------------------------------------------------------------


def prompts() -> list[np.ndarray]:
    """Three subjects with a beginning of 80 tokens each; six questions of 10 tokens in each."""
    rng = np.random.default_rng(0)
    shared = rng.integers(9, 100, (3, 80))
    return passes.ids(*([*shared[i % 3], *rng.integers(9, 100, 10)] for i in range(18)))


@pytest.mark.parametrize(
    ("limits", "size", "sizes"),
    [
        (ALONE, 1, [[3]] * 6),
        (BatchLimits(4, ROOM), 1, [[3, 3]] * 3),
        (BatchLimits(10, ROOM), 1, [[3] * 4, [3] * 2]),
        (BatchLimits(100, ROOM), 1, [[3] * 6]),
        # Two packs of one subject take 80 + 30 + 30 tokens of 8 bytes, three of two subjects take as many and 110.
        (BatchLimits(100, 8 * 140), 8, [[3, 3]] * 3),
        (BatchLimits(100, 8 * 139), 8, [[3]] * 6),
        (BatchLimits(100, 8 * 250), 8, [[3] * 3, [3] * 3]),
    ],
)
def test_batches_hold_packs_up_to_their_limits(limits: BatchLimits, size: int, sizes: list[list[int]]) -> None:
    assert [[len(planned.rows) for planned in each] for each in BatchPlanner(prompts(), 30, limits, size)] == sizes


def test_batches_hold_prompts_once_and_equal_ones_together() -> None:
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


def test_batches_are_halved_down_to_one_prompt() -> None:
    decode_batches = BatchPlanner(prompts(), 60, ALL, 1)
    seen: list[list[int]] = []
    for decode_batch in decode_batches:
        seen.append([len(planned.rows) for planned in decode_batch])
        assert decode_batches.halve(decode_batch) == (sum(seen[-1]) > 1)
    assert seen[:3] == [[6, 6, 6], [6], [3]]
    assert seen.count([1]) == 18


# --- side by side -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("budget", [1, 30])
def test_packs_side_by_side_are_as_alone(llama: LanguageModel, budget: int, *, given: bool) -> None:
    """Prompts of two beginnings are in one decode batch, two of them equal."""
    alone = measured(llama, ALONE, budget=budget, given=given)
    for together in (PAIRS, ALL):
        found = measured(llama, together, budget=budget, given=given)
        assert_same(found, alone)
        for stage, cost in alone.costs.items():
            assert found.costs[stage].forward_tokens == cost.forward_tokens


def test_decoding_steps_advance_all_packs(llama: LanguageModel) -> None:
    counted: dict[str, list[int]] = {}
    forward = Session.forward

    def noted(kind: str) -> Callable[..., Any]:
        def once(self: Session, ids: Any, *rest: Any) -> Any:
            counted.setdefault(kind, []).append(len(ids))
            return forward(self, ids, *rest)

        return once

    for kind, together in (("alone", ALONE), ("all", ALL)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Session, "forward", noted(kind))
            measured(llama, together, given=True)
    assert sum(counted["alone"]) == sum(counted["all"])
    packs = sum(1 for _ in BatchPlanner(passes.prompts(), 30, ALONE, 1))
    assert packs == 3
    after = 1 + 1 + 3  # answers with queries, options, and three steps of samples
    assert len(counted["alone"]) - len(counted["all"]) == after * packs - after


def test_keys_of_followed_packs_are_dropped(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, new_row = [], Session.new_row

    def noted(self: Session, *least: int) -> Any:
        row = new_row(self, *least)
        rows.append(weakref.ref(row))
        return row

    monkeypatch.setattr(Session, "new_row", noted)
    measured(llama, PAIRS)
    gc.collect()
    assert len(rows) >= 2  # the session's own when it is emptied, and that of two packs
    assert [row() is llama.session._main for row in rows if row() is not None] == [True]


# --- memory -----------------------------------------------------------------------------------------------------------


def cramped(patched: pytest.MonkeyPatch, fails: int) -> list[int]:
    """Let memory run out at one of the places where it may; the list tells how many of them were passed."""
    passed = [0]

    def counting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            passed[0] += 1
            if passed[0] == fails:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return plain(*args, **kwargs)

        return call

    places: Sequence[tuple[Any, str]] = (
        (Session, "forward"), (Session, "copy_to"), (OutputHead, "logits"), (extractor, "copy_to_host"),
    )  # fmt: skip
    for owner, name in places:
        patched.setattr(owner, name, counting(getattr(owner, name)))
    return passed


def test_memory_that_runs_out_anywhere_changes_nothing(llama: LanguageModel) -> None:
    with pytest.MonkeyPatch.context() as patched:
        places = cramped(patched, 0)
        calm = measured(llama, ALL, limit=2)
    assert calm.halvings == 0
    assert places[0] >= 15
    for fails in range(1, places[0] + 1):
        with pytest.MonkeyPatch.context() as patched:
            cramped(patched, fails)
            halved = measured(llama, ALL, limit=2)
        assert halved.halvings == 1
        assert_same(halved, calm)


@pytest.mark.parametrize("most", [120, 150, 180])
def test_batches_that_never_fit_are_halved(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    calm = measured(llama, ALL, limit=1)
    forward = Session.forward

    def small(self: Session, ids: Any, *rest: Any) -> Any:
        if self.row.length + len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, ids, *rest)

    monkeypatch.setattr(Session, "forward", small)
    halved = measured(llama, ALL, limit=1)
    assert halved.halvings > 0
    assert_same(halved, calm)


@pytest.mark.parametrize("alone", [None, "each question is to be read alone"])
@pytest.mark.parametrize(
    ("error", "raised", "sentence"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), UserError, "does not fit into the memory"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_prompts_that_fail_alone_end_it(
    llama: LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception],
    sentence: str,
    alone: str | None,
) -> None:
    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setitem(vars(llama), "no_packs_reason", alone)
    monkeypatch.setattr(Session, "forward" if alone is None else "read_alone", failing)
    with pytest.raises(raised, match=sentence):
        passes.extract(llama, SIGNALS[:5], items(), 1)


def test_uploads_that_wait_are_forgotten_after_failure(llama: LanguageModel) -> None:
    session = Session(llama.model)
    kept = session.send(np.arange(3))
    session.reset()
    assert not session.sending._waiting
    assert kept.tensor.tolist() == [0, 1, 2]
