"""What a plugin raises becomes a value; what stops the program does not."""

from __future__ import annotations

import pytest

from bench.api.errors import capture


def raising(error: BaseException) -> None:
    raise error


def test_capture_gives_the_value() -> None:
    assert capture(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit("x")])
def test_capture_returns_errors_without_frames(error: BaseException) -> None:
    found = capture(raising, error)
    assert found is error
    assert found.__traceback__ is None


def test_capture_lets_an_interrupt_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        capture(raising, KeyboardInterrupt())
