"""Plain lines say how far a stage is, not more often than useful; silence is silent; bars don't touch stdout."""

from __future__ import annotations

import io
import time

import pytest

from bench import progress
from bench.progress import Bars, Lines, Silent


class Clock:
    """Seconds that pass only when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_short_stage_says_nothing(clock: Clock) -> None:
    out = io.StringIO()
    with Lines(out).stage("read", 10) as advance:
        clock.now += progress._QUIET_SECONDS / 2
        advance(10)
    assert out.getvalue() == ""


def test_a_long_stage_tells_rate_and_time_left_and_its_end(clock: Clock) -> None:
    out = io.StringIO()
    lines = Lines(out)
    with lines.stage("read atlas/test", 3000, unit="tokens") as advance:
        clock.now += 20
        advance(1000)
        clock.now += 1
        lines.seconds_after = 900.0  # as a run expects of its other stages
        advance(500)  # too soon for another line
        clock.now += 19
        advance(500)
        clock.now += 20
        advance(1000)
    assert out.getvalue().splitlines() == [
        "read atlas/test: 1,000/3,000 tokens, 50/s, about 40 s left",
        "read atlas/test: 2,000/3,000 tokens, 50/s, about 20 s left, then about 15 min",
        "read atlas/test: 3,000/3,000 tokens, 50/s, less than 1 s left, then about 15 min",
        "read atlas/test: 3,000 tokens in 60.0 s",
    ]


def test_what_takes_seconds_each_is_no_rate_of_zero(clock: Clock) -> None:
    out = io.StringIO()
    with Lines(out).stage("train ct", 40, unit="steps") as advance:
        clock.now += 50
        advance(4)
    assert out.getvalue().splitlines()[0] == "train ct: 4/40 steps, 12.5 s each, about 450 s left"


def test_nothing_done_yet_is_no_division_by_zero(clock: Clock) -> None:
    out = io.StringIO()
    with Lines(out).stage("fit", 1) as advance:
        clock.now += 30
        advance(0)
    assert "inf s left" not in out.getvalue()
    assert out.getvalue().splitlines()[-1] == "fit: 0 questions in 30.0 s"


def test_more_done_than_announced_leaves_no_negative_time(clock: Clock) -> None:
    out = io.StringIO()
    with Lines(out).stage("fit", 1) as advance:
        clock.now += 30
        advance(2)
    assert "less than 1 s left" in out.getvalue()


@pytest.mark.parametrize("kind", [Silent(), Lines(io.StringIO()), Bars()], ids=lambda k: type(k).__name__)
def test_an_error_inside_a_stage_comes_out_as_it_is(kind: progress.Progress) -> None:
    def broken() -> None:
        with kind.stage("read", 3) as advance:
            advance(1)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        broken()


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Silent()
    quiet.say("anything")
    with quiet.stage("read", 3) as advance:
        advance(3)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_bars_leave_stdout_alone_and_print_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars()
    bars.say("[bold]Plan[/bold]: Hidden(1.0)")
    with bars.stage("read", 3, unit="tokens") as advance:
        advance(1)
        advance(2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[bold]Plan[/bold]: Hidden(1.0)" in captured.err
