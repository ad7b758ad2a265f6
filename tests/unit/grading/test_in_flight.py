"""What several runs need is asked once, and what was under way when one was killed is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.grading import openai
from bench.grading.verdicts import Verdicts
from tests.unit.grading.test_openai import EVEN, RIVERS, Call, Reply, Scripted, ask, even_rivers, judge, server

__all__ = ["server"]
ROOT = Path(__file__).parents[3]

RUN = """
import sys
from pathlib import Path
from bench.grading import openai
from bench.grading.address import Address
from bench.grading.grade import JudgeCase
from bench.grading.openai import OpenAI
from bench.progress import Lines
rivers = [JudgeCase(f"Where does river {i} end?", f"Gold {i}", f"Answer {i}") for i in range(12)]
openai.GRACE_S = float(sys.argv[3])
judge = OpenAI(Address.of(sys.argv[1]), "judge", Path(sys.argv[2]), concurrency=4)
try:
    print(judge.verdicts(rivers, "judge rivers/test", Lines(sys.stderr)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def started(server: Scripted, cache: Path, grace: float = openai.GRACE_S) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, server.url, str(cache), str(grace)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def until(seen: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_claim_is_held_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    one, other, another = (Verdicts(tmp_path, {"judge": name}) for name in "jjk")
    with one.claimed(RIVERS[0]) as mine, other.claimed(RIVERS[0]) as twice, another.claimed(RIVERS[0]) as of_another:
        assert (mine, twice, of_another) == (True, False, True)
        assert other.left_behind(RIVERS) == 0
    assert not any((tmp_path / "verdicts" / "claims").iterdir())
    with pytest.raises(KeyboardInterrupt), other.claimed(RIVERS[0]):
        raise KeyboardInterrupt
    assert one.left_behind(RIVERS[1:]) == 0
    assert one.left_behind(RIVERS) == 1
    assert one.left_behind(RIVERS) == 0


def test_two_runs_at_once_pay_once(server: Scripted, tmp_path: Path, heard: Any) -> None:
    server.script = lambda call, n: Reply(even_rivers(call, n).text, seconds=0.1)
    found: dict[int, list[bool | None]] = {}

    def run(i: int) -> None:
        found[i] = ask(judge(server, tmp_path, concurrency=2), heard=heard)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: EVEN, 1: EVEN, 2: EVEN}
    assert sorted(call.text for call in server.calls) == sorted({call.text for call in server.calls})
    assert any("another run asks about some of these answers" in line for line in heard.said)
    assert not any((tmp_path / "verdicts" / "claims").iterdir())


def test_two_processes_at_once_pay_once(server: Scripted, tmp_path: Path) -> None:
    server.script = lambda call, n: Reply(even_rivers(call, n).text, seconds=0.3)
    running = [started(server, tmp_path) for _ in range(2)]
    for one in running:
        out, err = one.communicate(timeout=60)
        assert (one.returncode, out.strip()) == (0, str(EVEN)), err
    assert len(server.calls) == 12


def test_a_run_that_hangs_is_waited_for_within_limits(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "_LONGEST_WAIT_S", 0.5)
    one = judge(server, tmp_path)
    with one.kept.claimed(RIVERS[3]):
        with pytest.raises(UserError, match=r"Another run asks the judge about the same answers.*goes on from the 11"):
            ask(one)
        assert len(server.calls) == 11
    assert ask(judge(server, tmp_path)) == [True] * 12
    assert len(server.calls) == 12


def test_a_killed_run_pays_again_for_what_was_under_way_and_says_so(
    server: Scripted, tmp_path: Path, heard: Any
) -> None:
    hold = threading.Event()

    def script(call: Call, n: int) -> Reply:
        if n > 4:
            hold.wait(30)
        return even_rivers(call, n)

    server.script = script
    running = started(server, tmp_path)
    until(lambda: len(server.calls) == 8)
    running.kill()
    running.communicate()
    hold.set()
    kept = len(judge(server, tmp_path).kept)
    assert kept == 4
    assert ask(judge(server, tmp_path), heard=heard) == EVEN
    assert len(server.calls) == 12 + 4
    (told,) = [line for line in heard.said if "may have been paid for, and are made again" in line]
    assert told.startswith("judge rivers/test: 4 calls were under way when a run was stopped;")
    assert not any((tmp_path / "verdicts" / "claims").iterdir())
    heard.said.clear()
    ask(judge(server, tmp_path), heard=heard)
    assert heard.said == []


@pytest.mark.parametrize(("slow", "grace", "again"), [(0.5, 60.0, 0), (60.0, 0.2, 4)])
def test_ctrl_c_waits_a_moment_for_what_is_under_way(
    server: Scripted, tmp_path: Path, heard: Any, slow: float, grace: float, again: int
) -> None:
    hold = threading.Event()

    def script(call: Call, n: int) -> Reply:
        if n > 4:
            hold.wait(slow)
        return even_rivers(call, n)

    server.script = script
    running = started(server, tmp_path, grace)
    until(lambda: len(server.calls) == 8)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    hold.set()
    assert len(judge(server, tmp_path).kept) == 8 - again
    assert ask(judge(server, tmp_path), heard=heard) == EVEN
    assert len(server.calls) == 12 + again
    assert any(f"{again} calls were under way" in line for line in heard.said) == bool(again)


def test_a_file_system_without_locks_is_no_reason_to_stop(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def none(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    server.script = even_rivers
    assert ask(judge(server, tmp_path)) == EVEN
    assert len(server.calls) == 12


def test_what_can_not_be_kept_was_perhaps_paid(
    server: Scripted, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(
            os, "write", lambda fd, data: write(fd, data[:20]) if data.startswith(b'{"key') else write(fd, data)
        )
        with pytest.raises(UserError, match="no space left"):
            ask(judge(server, tmp_path))
    ask(judge(server, tmp_path), heard=heard)
    assert any("1 calls were under way" in line for line in heard.said)
