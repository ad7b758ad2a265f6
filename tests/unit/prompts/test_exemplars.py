"""Exemplars: the pool's first ones, or drawn as the official code draws them; never the question itself."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.api import Question, Task
from bench.api.protocol import FIXED, PAPER
from bench.prompts.exemplars import exemplars, indices_in_subject

POOL = [Question(f"p{i}", "s", f"{i}?", ("a", "b"), 0) for i in range(40)]


class Plain(Task):
    name: ClassVar[str] = "plain"

    def questions(self, split):
        return iter(())


class Drawing(Plain):
    draws_exemplars: ClassVar[bool] = True


def shown(task: type[Task], question: Question, place: int = 0, protocol=FIXED, pool=POOL) -> list[str]:
    return [q.id for q in exemplars(task(None), question, place, pool, protocol)]


ASKED = Question("asked", "s", "?", ("a", "b"), 0)


def test_exemplars_under_fixed_are_the_first() -> None:
    assert shown(Plain, ASKED) == ["p0", "p1", "p2", "p3", "p4"]
    assert shown(Plain, POOL[2]) == ["p0", "p1", "p3", "p4", "p5"]


@given(st.integers(0, 200))
def test_exemplars_drawn_follow_the_official_permutation(place: int) -> None:
    expected = np.random.default_rng(FIXED.exemplar_seed + place).permutation(len(POOL))[:5]
    assert shown(Drawing, ASKED, place) == [f"p{i}" for i in expected]
    assert shown(Plain, ASKED, place, PAPER) == [f"p{i}" for i in expected]


@given(st.integers(0, 39), st.integers(0, 50))
def test_exemplars_never_have_the_question_itself(row: int, place: int) -> None:
    ids = shown(Drawing, POOL[row], place)
    assert len(set(ids)) == 5
    assert POOL[row].id not in ids


def test_exemplar_sets_take_turns() -> None:
    protocol = replace(FIXED, exemplar_sets=3)
    sets = [shown(Drawing, ASKED, place, protocol) for place in range(7)]
    assert sets[0] == sets[3] == sets[6]
    assert sets[1] == sets[4]
    assert len({tuple(ids) for ids in sets}) == 3
    assert shown(Plain, ASKED, 1, protocol) == shown(Plain, ASKED, 2, protocol)  # only drawn ones come in sets


def test_exemplars_of_small_pools_are_fewer() -> None:
    assert shown(Plain, ASKED, pool=POOL[:2]) == ["p0", "p1"]
    assert sorted(shown(Drawing, POOL[0], pool=POOL[:3])) == ["p1", "p2"]
    assert shown(Drawing, ASKED, pool=[]) == []
    assert shown(Plain, ASKED, protocol=replace(FIXED, shots=0)) == []


def test_indices_count_within_subjects() -> None:
    questions = [Question(f"{s}{i}", s, "?", ("a", "b"), 0) for i, s in enumerate("abab")]
    assert indices_in_subject(questions) == {"a0": 0, "b1": 0, "a2": 1, "b3": 1}
