"""Verdicts survive whatever happens to the process that writes them, and belong to one judge alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import UserError
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCache, cases_to_judge
from bench.store.disk_cache import key_of

ROOT = Path(__file__).parents[3]
JUDGE = {"kind": "openai", "model": "m", "url": "http://host/v1", "prompt": "judge/1", "temperature": 0.0}
ONE, TWO = JudgeCase("q", "gold", "answer"), JudgeCase("q", "gold", "other")

APPEND = """
import sys
from pathlib import Path
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCache
who, folder = sys.argv[1], Path(sys.argv[2])
kept = VerdictCache(folder, {"kind": "test"})
print("ready", flush=True)
sys.stdin.readline()
for i in range(150):
    kept.put(JudgeCase("q" * 2000, who, str(i)), i % 2 == 0)
"""


@pytest.fixture
def kept(tmp_path: Path) -> VerdictCache:
    """A cache with one verdict."""
    cache = VerdictCache(tmp_path, JUDGE)
    cache.put(ONE, True)
    return cache


def test_verdict_comes_back_in_the_next_process(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    assert not list(tmp_path.iterdir())
    assert kept.get(ONE) is None
    kept.reported = "r"
    kept.put(ONE, True, "r")
    kept.put(TWO, False, "r")
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.reported, len(again), again.damaged) == (True, False, "r", 2, 0)
    others = [JudgeCase("p", "gold", "answer"), JudgeCase("q", "Gold", "answer"), JudgeCase("q", "gold", "answer ")]
    assert [again.get(other) for other in others] == [None] * 3
    again.reported = "s"
    assert again.get(ONE) is None


@given(st.builds(JudgeCase, st.text(), st.text(), st.text()), st.booleans())
def test_verdict_of_any_text_is_kept(tmp_path_factory: pytest.TempPathFactory, asked: JudgeCase, verdict: bool) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    VerdictCache(folder, JUDGE).put(asked, verdict)
    assert VerdictCache(folder, JUDGE).get(asked) is verdict


@pytest.mark.parametrize(
    "change", [{"kind": "hf"}, {"model": "n"}, {"url": "http://other/v1"}, {"prompt": "judge/2"}, {"temperature": 1.0}]
)
def test_verdict_is_of_one_judge(tmp_path: Path, kept: VerdictCache, change: dict[str, object]) -> None:
    other = VerdictCache(tmp_path, {**JUDGE, **change})
    assert other.get(ONE) is None
    other.path.write_bytes(kept.path.read_bytes())  # even where its lines are in the file
    assert VerdictCache(tmp_path, {**JUDGE, **change}).get(ONE) is None


def test_last_line_may_be_cut_anywhere(tmp_path: Path, kept: VerdictCache) -> None:
    first = len(kept.path.read_bytes())
    kept.put(TWO, False)
    whole = kept.path.read_bytes()
    third = JudgeCase("q", "gold", "third")
    kept.path.write_bytes(whole[:-1])  # a line that lacks only its end is whole
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.damaged) == (True, False, 0)
    for cut in (first, *range(first + 1, len(whole) - 2, 9), len(whole) - 2):
        kept.path.write_bytes(whole[:cut])
        again = VerdictCache(tmp_path, JUDGE)
        assert (again.get(ONE), again.get(TWO)) == (True, None)
        assert again.damaged == (cut > first)
        again.put(third, True)
        again.put(TWO, False)
        after = VerdictCache(tmp_path, JUDGE)
        assert (after.get(ONE), after.get(TWO), after.get(third)) == (True, False, True), cut
        assert after.damaged == (cut > first)


@pytest.mark.parametrize("line", ["", "{}", "[]", "null", "3", '"yes"', "\x00\x00", "\xff", "{" * 500, "[" * 100_000])
def test_line_of_something_else_is_counted_and_not_used(tmp_path: Path, kept: VerdictCache, line: str) -> None:
    kept.path.write_bytes(line.encode("latin-1") + b"\n" + kept.path.read_bytes())
    again = VerdictCache(tmp_path, JUDGE)
    assert again.get(ONE) is True
    assert again.damaged == bool(line)
    assert again.notes == (["1 damaged lines of the cache of verdicts are not used"] if line else [])


@pytest.mark.parametrize(
    "change",
    [{"verdict": 1}, {"verdict": "yes"}, {"verdict": None}, {"verdict": False}, {"answer": "altered"}, {"gold": 3},
     {"reported": "other"}, {"digest": None}, {"digest": "gone"}],
)  # fmt: skip
def test_altered_line_is_not_used_and_told_once(tmp_path: Path, kept: VerdictCache, change: dict[str, object]) -> None:
    kept.put(TWO, False)
    first, second = kept.path.read_text().splitlines()
    altered = {name: value for name, value in {**json.loads(first), **change}.items() if value != "gone"}
    kept.path.write_text(f"{json.dumps(altered)}\n{second}\n")
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.damaged, len(again)) == (None, False, 1, 1)
    assert again.notes == ["1 damaged lines of the cache of verdicts are not used"]


def test_flipped_bit_gives_no_other_verdict(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True, "r")
    whole = kept.path.read_bytes()
    for place in range(len(whole)):
        kept.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        again = VerdictCache(tmp_path, JUDGE)
        again.reported = "r"
        assert again.get(ONE) in {None, True}


def test_verdict_of_another_process_is_found(tmp_path: Path) -> None:
    one, other = VerdictCache(tmp_path, JUDGE), VerdictCache(tmp_path, JUDGE)
    one.refresh()
    other.put(ONE, True, "r")
    one.refresh()
    assert (one.get(ONE), one.reported) == (True, "r")
    other.put(TWO, False, "s")
    with one.path.open("ab") as file:
        file.write(b'{"key": "half a li')
    one.refresh()
    assert (one.reported, one.notes, len(one)) == ("r", [], 2)
    one.put(TWO, True, "r")
    one.refresh()
    assert one.get(TWO) is True


def test_two_processes_that_append_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", APPEND]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [*command, who, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for who in ("left", "right")
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.communicate("go\n", timeout=60)
        assert process.returncode == 0
    kept = VerdictCache(tmp_path, {"kind": "test"})
    assert (kept.damaged, len(kept)) == (0, 300)
    assert all(
        kept.get(JudgeCase("q" * 2000, who, str(i))) is (i % 2 == 0) for who in ("left", "right") for i in range(150)
    )


def test_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "verdicts").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cache of verdicts could not be read"):
        VerdictCache(tmp_path, JUDGE)
    (tmp_path / "verdicts").unlink()
    kept = VerdictCache(tmp_path, JUDGE)
    (tmp_path / "verdicts").write_text("")
    with pytest.raises(UserError, match=r"could not be written.*CONFBENCH_CACHE"):
        kept.put(ONE, True)
    assert kept.get(ONE) is None


def test_full_disk_harms_no_other_line(tmp_path: Path, kept: VerdictCache, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(UserError, match="no space left"):
            kept.put(TWO, True)
    kept.put(TWO, False)
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.damaged) == (True, False, 1)


def test_verdict_is_on_the_disk_when_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    kept.put(TWO, True)
    assert synced == [kept.path, kept.path.parent, kept.path]


def test_several_right_answers_have_their_own_verdicts(tmp_path: Path) -> None:
    judge = {"kind": "x"}
    kept = VerdictCache(tmp_path, judge)
    several = replace(ONE, others=("also",))
    kept.put(ONE, verdict=False)
    kept.put(several, verdict=True)
    again = VerdictCache(tmp_path, judge)
    assert [again.get(case) for case in (ONE, several, replace(ONE, others=("other",)))] == [False, True, None]
    empty = [JudgeCase("q", "gold", ""), JudgeCase("q", "gold", " \n")]
    assert cases_to_judge([ONE, TWO, *empty, TWO], kept) == [TWO]
    first, second = map(json.loads, again.path.read_text(encoding="utf-8").splitlines())
    assert "others" not in first
    assert second["others"] == ["also"]
    before = {"judge": judge, "reported": None, "question": "q", "gold": "gold", "answer": "answer"}
    assert first["key"] == key_of(before)  # as verdicts were kept before there could be several
