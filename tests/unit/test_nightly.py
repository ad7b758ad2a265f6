"""`make nightly` on planted parts: what is run, left out, ended and run again, and what its page says."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nightly import page
from tests.nightly.__main__ import ROOT, Nightly, main
from tests.nightly.ledger import Outcome, State
from tests.nightly.log import Log
from tests.nightly.parts import Need, Part

GIT = ("git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
COUNTING = "import sys; file = open('count', 'a+'); file.write('x'); file.seek(0); n = len(file.read())"
"""Counts its runs in a file, as `n`."""


def planted(name: str, code: str, **more: object) -> Part:
    return Part(name, f"{name} is proven", f'python -c "{code}"', reads=("bench",), **more)


@pytest.fixture(autouse=True)
def _signals_do_what_they_did() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("bench/a.py", "docs/index.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "it"]):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    return tmp_path


def outcome(nightly: Nightly) -> Outcome:
    """Of its last part."""
    known = nightly.outcome(nightly.parts[-1])
    assert known is not None
    return known


def test_nightly_goes_on_after_a_part_that_fails(root: Path) -> None:
    red = planted(
        "tests", "print('FAILED a.py::test_bad - x'); print('== 1 failed, 1 passed in 0.1s =='); raise SystemExit(1)"
    )
    missing = planted("ray", "", need=Need("Ray", "pip install ray", lambda: False))
    nightly = Nightly(root, (red, missing, planted("fuzz", "print('5 runs'); print('0 crashes')")))
    assert main(nightly, []) == 1
    text = (root / "docs" / "nightly.md").read_text(encoding="utf-8")
    assert "| **red**: 1 failed, 1 passed |" in text
    assert "```\na.py::test_bad\n```" in text
    assert "| not run: Ray is missing, install it with pip install ray |" in text
    assert "| green: 0 crashes |" in text
    assert (main(nightly, ["--page", "fuzz"]), main(nightly, ["--page", "ray"])) == (0, 2)


def test_nightly_leaves_out_what_is_green(root: Path) -> None:
    nightly = Nightly(root, (planted("counts", f"{COUNTING}; print(n)", keeps="count"),))

    def said(*words: str) -> str:
        assert main(nightly, words) == 0
        return outcome(nightly).said

    assert [said(), said()] == ["1", "1"]
    (root / "bench" / "b.py").touch()
    assert main(nightly, ["--page"]) == 2  # the outcome is that of other code
    assert [said(), said()] == ["2", "2"]
    assert outcome(nightly).commit.endswith("+changes")
    assert said("--again", "counts") == "1"  # what the command had kept is gone


CHANGING = "open('bench/a.py', 'w').write('1'); print('3 passed in 1.0s')"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (CHANGING, "not finished: the code changed meanwhile (3 passed)"),
        ("print('=== 1 skipped, 9 deselected in 0.1s ===')", "not run: 1 skipped"),
    ],
)
def test_nightly_does_not_count_it_as_green(root: Path, code: str, said: str) -> None:
    nightly = Nightly(root, (planted("slow", code),))
    assert main(nightly, []) == 2
    assert outcome(nightly).said == said


LOG = """\
\x1b[31mF\x1b[0m.s
ERROR    root:loop.py:3 captured
E   FileNotFoundError: '/home/me/bench/x.json', see https://a.b/c/d and /etc/deep/hosts
== short test summary info ==
SKIPPED [2] tests/a.py:3: no GPU
SKIPPED [1] /home/me/bench/tests/b.py:4: /data/big/file is not there
SKIPPED [1] tests/c.py:5: no GPU
FAILED tests/a.py::test_x[a b] - AssertionError: left - right
ERROR tests/b.py::test_y
== 1 failed, 3 passed, 4 skipped, 2 deselected, 1 warning, 1 error in 61.02s (0:01:01) ==
a thread said goodbye
"""


def test_nightly_reads_the_words_of_pytest() -> None:
    log = Log(LOG, Path("/home/me/bench"))
    assert log.said == "1 failed, 3 passed, 4 skipped, 1 error"
    assert log.failures == ["tests/a.py::test_x[a b]", "tests/b.py::test_y"]
    assert log.skips == {"no GPU": 3, ".../file is not there": 1}
    assert log.lines[2] == "E   FileNotFoundError: 'x.json', see https://a.b/c/d and .../hosts"
    assert Log("\n".join(map(str, range(20))), ROOT).failures == [str(i) for i in range(10, 20)]


def test_nightly_page_is_the_golden_one() -> None:
    parts = [Part(name, f"{name} holds", f"python -m {name}") for name in ("slow", "faults", "fuzz", "ray")]
    here = Outcome(
        State.RED, "12 failed, 3 passed", "", "c0de", "3d6527f", "2 cores of X, 8 GiB, Python 3.12.1",
        "2026-11-24T18:43:00+00:00", 61.04, (0.5, 2.25), failures=[f"test_{i}" for i in range(12)], skips={"a < b": 2},
    )  # fmt: skip
    green = replace(here, state=State.GREEN, said="9 faults, 9 survived", failures=[], skips={}, commit="fa0a0a0")
    earlier = replace(green, start="2026-11-23T18:43:00+00:00", machine="64 cores of Y, 256 GiB, Python 3.12.1")
    missing = replace(here, state=State.UNFINISHED, said="not run: Ray is missing", failures=[], skips={}, minutes=0.0)
    text = page.written(parts, {"slow": here, "faults": earlier, "ray": missing})
    assert text == (ROOT / "tests" / "golden" / "nightly.md.txt").read_text(encoding="utf-8")
