"""Tests of my-task: the rules that `bench check` knows, and that the task's rows are read as they are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from my_task import MyTask

from bench.testing import NO_SOURCE, checks_of

RULES = dict(checks_of(Path(__file__).with_name("my_task.py")))


@pytest.mark.parametrize("name", RULES)
def test_it_keeps_the_rules(name: str) -> None:
    result = RULES[name]()
    assert result.ok, result.message


def test_the_first_question_is_the_first_row() -> None:
    first = next(MyTask(NO_SOURCE).questions("test"))
    assert first.text == "Which city lies on the Thames?"
    assert first.answer == "London"
