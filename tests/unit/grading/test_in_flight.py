"""What several runs need is asked once, and what was under way when one was killed is told."""

from __future__ import annotations

import errno
import fcntl
import os
import re
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
from bench.grading.verdicts import VerdictCache
from tests.kit.servers import Call, JudgeServer, Reply
from tests.unit.grading.test_openai import EVEN, ask, even_rivers, judge

ROOT = Path(__file__).parents[3]
LOST = "calls that were under way, at most 8, may have been paid for and are made again"

RUN = """
import sys
from pathlib import Path
from bench.grading import openai
from bench.servers.address import Address
from bench.grading.grade import JudgeCase
from bench.grading.openai import OpenAIJudge
from bench.progress import Lines
rivers = [JudgeCase(f"Where does river {i} end?", f"Gold {i}", f"Answer {i}") for i in range(12)]
openai.GRACE_S = float(sys.argv[3])
judge = OpenAIJudge(Address.of(sys.argv[1]), "judge", Path(sys.argv[2]))
judge.concurrency = 4
try:
    print(judge.verdicts(rivers, "judge rivers/test", Lines(sys.stderr)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def started(server: JudgeServer, cache: Path, grace: float = openai.GRACE_S) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, server.url, str(cache), str(grace)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def until(seen: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_claim_is_of_one_judge_and_ends_unkilled(tmp_path: Path) -> None:
    one, other = (VerdictCache(tmp_path, {"judge": name}) for name in "jk")
    waited: list[str] = []
    with one.locked(waited.append) as first, other.locked(waited.append) as second:
        assert (first, second, waited) == (False, False, [])
    with pytest.raises(KeyboardInterrupt), one.locked(waited.append):
        raise KeyboardInterrupt
    with one.locked(waited.append) as killed:
        assert not killed


def test_two_runs_at_once_pay_once(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
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
    whom = rf"waits for the verdicts of another run that asks the same judge \(process {os.getpid()} on "
    assert any(re.search(whom, line) for line in heard.said)
    assert not any("killed" in line for line in heard.said)


def test_killed_run_pays_again_for_calls_under_way(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
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
    kept = len(judge(server, tmp_path).cached)
    assert kept == 4
    assert ask(judge(server, tmp_path), heard=heard) == EVEN
    assert len(server.calls) == 12 + 4
    (told,) = [line for line in heard.said if LOST in line]
    assert told.startswith("judge rivers/test: the last run that asked this judge was killed; ")
    heard.said.clear()
    ask(judge(server, tmp_path), heard=heard)
    assert heard.said == []


@pytest.mark.parametrize(("slow", "grace", "again"), [(0.5, 60.0, 0), (60.0, 0.2, 4)])
def test_ctrl_c_waits_for_calls_under_way(
    server: JudgeServer, tmp_path: Path, heard: Any, slow: float, grace: float, again: int
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
    assert (f"judge rivers/test: the run is stopped; {LOST}" in err) == bool(again)
    assert len(judge(server, tmp_path).cached) == 8 - again
    assert ask(judge(server, tmp_path), heard=heard) == EVEN
    assert len(server.calls) == 12 + again
    assert not any(LOST in line for line in heard.said)


def test_file_system_may_lack_locks(server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    server.script = even_rivers
    assert ask(judge(server, tmp_path)) == EVEN
    assert len(server.calls) == 12


def test_verdict_not_kept_is_asked_again(server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(
            os, "write", lambda fd, data: write(fd, data[:20]) if data.startswith(b'{"key') else write(fd, data)
        )
        with pytest.raises(UserError, match=r"no space left.*A verdict that came just now is asked again"):
            ask(judge(server, tmp_path))
    assert ask(judge(server, tmp_path)) == [True] * 12
    assert len(server.calls) == 13
