"""What a plugin raises becomes a value; what stops the program does not."""

from __future__ import annotations

import pytest

from bench.api.errors import capture


def raising(error: BaseException) -> None:
    raise error


def test_work_gives_its_value() -> None:
    assert capture(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit("x")])
def test_what_a_plugin_raises_comes_back_and_holds_no_frames(error: BaseException) -> None:
    found = capture(raising, error)
    assert found is error
    assert found.__traceback__ is None


def test_an_interrupt_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt):
        capture(raising, KeyboardInterrupt())
