"""The packing of prefix trees: every token of every sequence once, seen by exactly those that follow it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.model import session
from bench.model.continuation_tree import read_pack, read_together
from bench.model.prefix_tree import _CUT, PrefixTree, plan_packs
from bench.model.session import Session
from bench.model.token_accounting import CountingSession
from bench.prompts.front_coding import FrontCodedIds
from tests.kit import passes
from tests.kit.passes import ids, prefixes

sequences = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=25, unique_by=tuple)
long_sequences = st.builds(
    lambda head, tails: [head + tail for tail in tails],
    st.lists(st.integers(0, 2), min_size=0, max_size=70),
    sequences,
)


@given(long_sequences)
def test_front_coded_ids_give_back_sequences(lists: list[list[int]]) -> None:
    kept = FrontCodedIds(ids(*lists))
    assert [each.tolist() for each in kept] == [each.tolist() for each in kept[:]] == lists
    assert (len(kept), kept.total) == (len(lists), sum(map(len, lists)))
    assert kept[-1].dtype == np.int32


def test_front_coded_ids_keep_exemplars_once() -> None:
    exemplars = np.arange(1000, dtype=np.int32)
    kept = FrontCodedIds([np.append(exemplars, np.int32([i, i])) for i in range(50)])
    held = {id(part): part.nbytes for beginning, _, tail in kept._parts for part in (beginning, tail)}
    assert sum(held.values()) < 5000


@given(long_sequences, st.integers(1, 40))
def test_packs_hold_every_sequence_at_its_leaf(lists: list[list[int]], budget: int) -> None:
    found = {}
    for pack in plan_packs(ids(*lists), budget):
        assert len(pack.tokens) <= budget or len(pack.rows) == 1
        seen = pack.visible()
        for row, leaf in zip(pack.rows, pack.leaves, strict=True):
            found[int(row)] = [*pack.shared.tolist(), *pack.tokens[seen[leaf]].tolist()]
        np.testing.assert_array_equal(pack.positions, len(pack.shared) + seen.sum(axis=1) - 1)  # itself included
        assert (pack.cuts[-1] if pack.cuts else 0) == len(pack.shared)
        assert all(cut % _CUT == 0 for cut in pack.cuts)
        assert list(pack.cuts) == sorted(set(pack.cuts))
    assert found == dict(enumerate(lists))


@given(long_sequences)
def test_packs_with_room_read_nothing_twice(lists: list[list[int]]) -> None:
    (pack,) = plan_packs(ids(*lists), budget=10_000)
    tree = PrefixTree()
    added = sum(tree.add(each) for each in ids(*lists, *lists))
    assert len(pack.tokens) == added == tree.nodes == len(prefixes(lists))


@given(long_sequences, st.randoms())
def test_packs_do_not_depend_on_order(lists: list[list[int]], random: object) -> None:
    order = list(range(len(lists)))
    random.shuffle(order)
    first, second = plan_packs(ids(*lists), 15), plan_packs(ids(*(lists[i] for i in order)), 15)
    assert [p.tokens.tolist() for p in first] == [p.tokens.tolist() for p in second]


def test_packs_of_a_subject_read_exemplars_once() -> None:
    assert plan_packs([], 8) == []
    rng = np.random.default_rng(0)
    exemplars = rng.integers(0, 500, 600)
    questions = ids(*([*exemplars, *rng.integers(0, 500, 80)] for _ in range(150)))
    packs = plan_packs(questions, 1024)
    cuts = {tuple(pack.shared[:cut].tolist()) for pack in packs for cut in pack.cuts}
    read = max(len(cut) for cut in cuts) + sum(len(pack.tokens) for pack in packs)
    assert read <= 1.02 * len(prefixes(questions))


@pytest.mark.parametrize("most", [session.MAX_CACHED_BYTES, 20_000, 120_000])
def test_counting_sessions_keep_beginnings_as_sessions(
    small_model: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(session, "MAX_CACHED_BYTES", most)
    lm = passes.load(small_model)
    real = Session(lm.model)
    counting = CountingSession(real.measure_bytes_per_token())
    draw = np.random.default_rng(0)
    exemplars = [draw.integers(5, 90, size) for size in (90, 70, 110)]
    fed = []
    for round_ in range(4):
        shown = exemplars[round_ % 3 :] + exemplars[: round_ % 2]
        packs = plan_packs(ids(*([*each, *draw.integers(5, 90, 9)] for each in shown for _ in range(5))), 64)
        for one in (real, counting):
            for pack in packs:
                read_pack(one, pack, 64, [lm.blocks])
            read_together(one, [(pack, pack.leaves) for pack in packs[:3]], 64, [lm.blocks])
        fed.append(real.tokens)
        assert (counting.tokens, counting.row.length) == (real.tokens, real.row.length)
    assert fed[-1] < 4 * fed[0]
    assert counting.bytes_per_token == real.bytes_per_token > 0
