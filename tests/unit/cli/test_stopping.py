"""A signal ends a command with one sentence and 128 + its number; a second one, or a clean-up that hangs, at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli import exit_codes
from bench.cli.exit_codes import catch_signals

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from bench.cli import app
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


def started(clean: str, before: str = "") -> subprocess.Popen[str]:
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # which `nohup` has taken away
    program = [sys.executable, "-c", heard + before + PROGRAM.format(clean=clean)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = child.communicate(timeout=30)
    return child.returncode, said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_one_sentence_and_a_code(number: signal.Signals, code: int) -> None:
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    with started("print('cleaned', file=sys.stderr)", heeds) as child:
        child.send_signal(number)
        found, said = ended(child)
    word = "interrupted" if code == 130 else "stopped"
    assert found == code
    assert said == f"cleaned\nbench: {word}; what was finished is stored, run the same command to go on\n"


def test_a_clean_up_that_hangs_is_cut_short() -> None:
    assert exit_codes._CLEANUP_SECONDS < 10  # Docker's time until it kills
    with started("time.sleep(60)", "from bench.cli import exit_codes; exit_codes._CLEANUP_SECONDS = 0.2") as child:
        child.terminate()
        code, said = ended(child)
    assert (code, said.count("bench: stopped;")) == (143, 1)


def test_a_second_signal_ends_it_at_once() -> None:
    patient = "from bench.cli import exit_codes; exit_codes._CLEANUP_SECONDS = 60"
    with started("print('cleaning', flush=True), time.sleep(60)", patient) as child:
        child.terminate()
        assert child.stdout is not None
        assert child.stdout.readline() == "cleaning\n"
        child.send_signal(signal.SIGHUP)
        code, said = ended(child)
    assert (code, said.count("bench: stopped;")) == (143, 1)


def test_signals_that_are_ignored_stay_so_and_others_are_put_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        other = signal.getsignal(signal.SIGTERM)
        with catch_signals() as stop:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is stop
            os.kill(os.getpid(), signal.SIGHUP)
        assert (stop.signal, stop.code) == (None, 130)
        assert signal.getsignal(signal.SIGTERM) == other
    finally:
        signal.signal(signal.SIGHUP, before)
