"""A signal ends a command with one sentence and its code; what can't be printed is dropped, and nothing is raised."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli import exit_codes
from bench.cli.exit_codes import LossyStream, catch_signals, lossy_streams

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHON": sys.executable}

# --- streams ----------------------------------------------------------------------------------------------------------


class Failing(io.StringIO):
    """A stream that fails from some write on."""

    def __init__(self, number: int, after: int = 0) -> None:
        super().__init__()
        self.number, self.left = number, after

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)


def test_output_that_fails_is_dropped_and_told_later() -> None:
    inner = Failing(errno.ENOSPC, after=1)
    stream = LossyStream(inner)
    assert [stream.write(text) for text in ("one", "two", "three")] == [3, 3, 5]
    stream.flush()
    assert (inner.getvalue(), stream.lost_output) == ("one", os.strerror(errno.ENOSPC))
    assert stream.isatty() is False


def test_output_to_a_reader_that_left_needs_no_word() -> None:
    stream = LossyStream(Failing(errno.EPIPE))
    stream.write("one")
    assert stream.failure is not None
    assert stream.lost_output == ""


def test_streams_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    with lossy_streams() as stream:
        assert id(sys.stdout) == id(stream)
        sys.stdout.write("said\n")
    assert sys.stdout is out
    assert out.getvalue() == "said\n"


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "| head -c1"])
def test_streams_that_are_closed_or_full_trouble_nobody(redirection: str, tmp_path: Path) -> None:
    """The first file that is opened while a stream is closed gets none of what is printed."""
    start = "from bench.cli.exit_codes import lossy_streams\nwith lossy_streams():\n f = open('file', 'w')\n"
    program = f"{start} print('x' * 100_000); import sys; print('e', file=sys.stderr)\n f.close()"
    command = f'cd "$DIRECTORY" && "$PYTHON" -c "$PROGRAM" {redirection}'
    env = {**ENVIRONMENT, "PROGRAM": program, "DIRECTORY": str(tmp_path)}
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr.removeprefix("e\n")) == (0, "")
    assert (tmp_path / "file").read_text() == ""


# --- errors of the file system ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENAMETOOLONG, "File name too long: 'nnnn' has 4 letters; name a shorter one"),
        (errno.EACCES, "Permission denied: 'nnnn'; name another one, or change its permissions"),
    ],
)
def test_paths_that_are_refused_are_one_sentence(number: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def raised(*path: str) -> None:
        raise OSError(number, os.strerror(number), *path)

    assert exit_codes.exit_code(lambda: raised("nnnn")) == 2
    assert capsys.readouterr().err == f"bench: {said}\n"
    with pytest.raises(OSError, match="Errno"):  # a mistake of ours
        exit_codes.exit_code(raised)


# --- signals ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup` has taken away
signal.signal(signal.SIGINT, signal.default_int_handler)
from bench.cli import app, exit_codes
exit_codes._CLEANUP_SECONDS = {seconds}
def work():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        {clean}
app.app = work
sys.argv = ["bench", "list"]
app.main()
"""


def told(clean: str, *signals: signal.Signals, seconds: float = exit_codes._CLEANUP_SECONDS) -> tuple[int, str]:
    """Exit code and standard error of a program that cleans up so and gets these signals; it prints before each."""
    program = [sys.executable, "-c", PROGRAM.format(clean=clean, seconds=seconds)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
        assert child.stdout is not None
        for number in signals:
            assert child.stdout.readline()
            child.send_signal(number)
        _, said = child.communicate(timeout=30)
    return child.returncode, said


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped"), (signal.SIGHUP, 129, "stopped")],
)
def test_signal_is_one_sentence_and_a_code(number: signal.Signals, code: int, word: str) -> None:
    sentence = f"bench: {word}; what was finished is stored, run the same command to go on"
    assert told("print('cleaned', file=sys.stderr)", number) == (code, f"cleaned\n{sentence}\n")


def test_signal_cuts_a_clean_up_that_hangs() -> None:
    assert exit_codes._CLEANUP_SECONDS < 10  # Docker's time until it kills
    code, said = told("time.sleep(60)", signal.SIGTERM, seconds=0.2)
    assert (code, said.count("bench: stopped;")) == (143, 1)


def test_signal_after_another_ends_at_once() -> None:
    clean = "print('cleaning', flush=True), time.sleep(60)"
    code, said = told(clean, signal.SIGTERM, signal.SIGHUP, seconds=60)
    assert (code, said.count("bench: stopped;")) == (143, 1)


def test_signals_that_are_ignored_stay_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        other = signal.getsignal(signal.SIGTERM)
        with catch_signals() as stop:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is stop
            os.kill(os.getpid(), signal.SIGHUP)
        assert (stop.signal, stop.code) == (None, 130)
        assert signal.getsignal(signal.SIGTERM) == other  # others are put back
    finally:
        signal.signal(signal.SIGHUP, before)
