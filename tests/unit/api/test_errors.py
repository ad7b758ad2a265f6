"""What a plugin raises becomes a value; what stops the program does not."""

from __future__ import annotations

import numpy as np
import pytest

from bench.api.errors import capture, reason_of
from bench.api.signals import Samples, TokenScores


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


def test_unknown_field_of_a_record_is_answered_with_those_there_are() -> None:
    reasons = []
    for signal in (TokenScores(top=2, divergence=True), Samples()):
        error = capture(lambda dtype: np.zeros(1, dtype)["log_prob"], signal.dtype)
        assert isinstance(error, ValueError)
        reasons.append(reason_of(error))
        assert all(name in reasons[-1] for name in signal.dtype.names or ())
    assert reasons[0].startswith("ValueError: no field of name log_prob; records of TokenScores have log_probability")


def test_unknown_field_of_a_plugins_own_record_gets_no_hint_of_others() -> None:
    error = capture(lambda dtype: np.zeros(1, dtype)["weight"], [("width", float)])
    assert isinstance(error, ValueError)
    assert reason_of(error) == "ValueError: no field of name weight"
    assert reason_of(KeyError("no field of name entropie")) == "KeyError: 'no field of name entropie'"
