"""The packing of prefix trees: every token of every sequence once, seen by exactly those that follow it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.model.prefix_tree import _CUT, Pack, PrefixTree, plan_packs
from bench.prompts.front_coding import FrontCodedIds

sequences = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=25, unique_by=tuple)
long_sequences = st.builds(
    lambda head, tails: [head + tail for tail in tails],
    st.lists(st.integers(0, 2), min_size=0, max_size=70),
    sequences,
)


def arrays(lists: list[list[int]]) -> list[np.ndarray]:
    return [np.asarray(ids, dtype=np.int32) for ids in lists]


def restored(pack: Pack, leaf: int) -> list[int]:
    """The sequence that a leaf stands for: what is shared, then every token that the leaf sees."""
    return [*pack.shared.tolist(), *pack.tokens[pack.visible()[leaf]].tolist()]


@given(long_sequences)
def test_tails_give_back_what_was_kept(lists: list[list[int]]) -> None:
    kept = FrontCodedIds(arrays(lists))
    assert [ids.tolist() for ids in kept] == [ids.tolist() for ids in kept[:]] == lists
    assert (len(kept), kept.total) == (len(lists), sum(map(len, lists)))
    assert kept[-1].dtype == np.int32


def test_tails_keep_exemplars_once() -> None:
    exemplars = np.arange(1000, dtype=np.int32)
    kept = FrontCodedIds([np.append(exemplars, np.int32([i, i])) for i in range(50)])
    held = {id(part): part.nbytes for beginning, _, tail in kept._parts for part in (beginning, tail)}
    assert sum(held.values()) < 5000


@given(long_sequences, st.integers(1, 40))
def test_every_sequence_is_what_its_leaf_sees(lists: list[list[int]], budget: int) -> None:
    packs = plan_packs(arrays(lists), budget)
    seen = {
        int(row): restored(pack, int(leaf)) for pack in packs for row, leaf in zip(pack.rows, pack.leaves, strict=True)
    }
    assert seen == dict(enumerate(lists))


@given(long_sequences, st.integers(1, 40))
def test_positions_follow_the_path_and_cuts_end_where_the_pack_begins(lists: list[list[int]], budget: int) -> None:
    for pack in plan_packs(arrays(lists), budget):
        seen = pack.visible().sum(axis=1)  # the token itself included
        np.testing.assert_array_equal(pack.positions, len(pack.shared) + seen - 1)
        assert (pack.cuts[-1] if pack.cuts else 0) == len(pack.shared)
        assert all(cut % _CUT == 0 for cut in pack.cuts)
        assert list(pack.cuts) == sorted(set(pack.cuts))


@given(long_sequences)
def test_with_room_for_all_nothing_is_read_twice(lists: list[list[int]]) -> None:
    (pack,) = plan_packs(arrays(lists), budget=10_000)
    distinct = {tuple(ids[:n]) for ids in lists for n in range(1, len(ids) + 1)}
    assert len(pack.tokens) == len(distinct)


@given(long_sequences, st.integers(1, 40))
def test_a_pack_over_budget_holds_one_sequence(lists: list[list[int]], budget: int) -> None:
    for pack in plan_packs(arrays(lists), budget):
        assert len(pack.tokens) <= budget or len(pack.rows) == 1


@given(long_sequences, st.randoms())
def test_the_order_of_sequences_does_not_matter(lists: list[list[int]], random: object) -> None:
    order = list(range(len(lists)))
    random.shuffle(order)
    first = plan_packs(arrays(lists), 15)
    second = plan_packs(arrays([lists[i] for i in order]), 15)
    assert [p.tokens.tolist() for p in first] == [p.tokens.tolist() for p in second]


@given(long_sequences)
def test_tree_counts_distinct_prefixes(lists: list[list[int]]) -> None:
    tree = PrefixTree()
    added = sum(tree.add(ids) for ids in arrays([*lists, *lists]))
    distinct = {tuple(ids[:n]) for ids in lists for n in range(1, len(ids) + 1)}
    assert added == tree.nodes == len(distinct)


def test_no_sequences_no_packs() -> None:
    assert plan_packs([], 8) == []


def test_a_subject_of_questions_reads_its_exemplars_once() -> None:
    rng = np.random.default_rng(0)
    exemplars = rng.integers(0, 500, 600)
    questions = [np.concatenate([exemplars, rng.integers(0, 500, 80)]).astype(np.int32) for _ in range(150)]
    packs = plan_packs(questions, 1024)
    cuts = {tuple(pack.shared[:cut].tolist()) for pack in packs for cut in pack.cuts}
    tree = PrefixTree()
    for ids in questions:
        tree.add(ids)
    read = max(len(cut) for cut in cuts) + sum(len(pack.tokens) for pack in packs)
    assert read <= 1.02 * tree.nodes
