"""What can't be printed is dropped and remembered; nothing is raised for it, and closed streams take no file."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli.exit_codes import LossyStream, lossy_streams

ROOT = Path(__file__).parents[3]
PRINT = "print('x' * 100_000); import sys; print('e', file=sys.stderr)"


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


def test_what_fails_is_dropped_and_told_later() -> None:
    inner = Failing(errno.ENOSPC, after=1)
    stream = LossyStream(inner)
    assert [stream.write(text) for text in ("one", "two", "three")] == [3, 3, 5]
    stream.flush()
    assert (inner.getvalue(), stream.lost_output) == ("one", os.strerror(errno.ENOSPC))
    assert stream.isatty() is False


def test_a_reader_that_left_needs_no_word() -> None:
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
def test_python_itself_has_nothing_to_complain_of(redirection: str, tmp_path: Path) -> None:
    """The first file that is opened while a stream is closed gets none of what is printed."""
    start = "from bench.cli.exit_codes import lossy_streams\nwith lossy_streams():\n"
    program = f"{start} f = open('file', 'w')\n {PRINT}\n f.close()"
    command = f'cd "$DIRECTORY" && "$PYTHON" -c "$PROGRAM" {redirection}'
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PROGRAM": program, "PYTHON": sys.executable}
    env["DIRECTORY"] = str(tmp_path)
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr.removeprefix("e\n")) == (0, "")
    assert (tmp_path / "file").read_text() == ""
