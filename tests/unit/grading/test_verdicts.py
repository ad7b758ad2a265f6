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


def test_a_verdict_comes_back_in_the_next_process(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    assert not list(tmp_path.iterdir())
    assert kept.get(ONE) is None
    kept.reported = "r"
    kept.put(ONE, True, "r")
    kept.put(TWO, False, "r")
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.reported, len(again), again.damaged) == (True, False, "r", 2, 0)


@given(st.builds(JudgeCase, st.text(), st.text(), st.text()), st.booleans())
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, asked: JudgeCase, verdict: bool) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    VerdictCache(folder, JUDGE).put(asked, verdict)
    assert VerdictCache(folder, JUDGE).get(asked) is verdict


@pytest.mark.parametrize(
    "change", [{"kind": "hf"}, {"model": "n"}, {"url": "http://other/v1"}, {"prompt": "judge/2"}, {"temperature": 1.0}]
)
def test_another_judge_never_inherits(tmp_path: Path, change: dict[str, object]) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    other = VerdictCache(tmp_path, {**JUDGE, **change})
    assert other.get(ONE) is None
    other.path.write_bytes(kept.path.read_bytes())  # even where its lines are in the file
    assert VerdictCache(tmp_path, {**JUDGE, **change}).get(ONE) is None


def test_another_question_gold_answer_or_reported_model_never_inherits(tmp_path: Path) -> None:
    VerdictCache(tmp_path, JUDGE).put(ONE, True, "r")
    kept = VerdictCache(tmp_path, JUDGE)
    assert kept.get(ONE) is True
    for asked in (
        JudgeCase("p", "gold", "answer"),
        JudgeCase("q", "Gold", "answer"),
        JudgeCase("q", "gold", "answer "),
    ):
        assert kept.get(asked) is None
    kept.reported = "s"
    assert kept.get(ONE) is None


def test_wherever_the_last_line_is_cut_the_others_stay_and_writing_goes_on(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    first = len(kept.path.read_bytes())
    kept.put(TWO, False)
    whole = kept.path.read_bytes()
    third = JudgeCase("q", "gold", "third")
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


def test_a_line_that_lacks_only_its_end_is_whole(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    kept.path.write_bytes(kept.path.read_bytes()[:-1])
    again = VerdictCache(tmp_path, JUDGE)
    again.put(TWO, True)
    after = VerdictCache(tmp_path, JUDGE)
    assert (after.get(ONE), after.get(TWO), after.damaged) == (True, True, 0)


@pytest.mark.parametrize("line", ["", "{}", "[]", "null", "3", '"yes"', "\x00\x00", "\xff", "{" * 500, "[" * 100_000])
def test_a_line_of_something_else_is_counted_and_not_used(tmp_path: Path, line: str) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    kept.path.write_bytes(line.encode("latin-1") + b"\n" + kept.path.read_bytes())
    again = VerdictCache(tmp_path, JUDGE)
    assert again.get(ONE) is True
    assert again.damaged == bool(line)
    assert again.notes == (["1 damaged lines of the cache of verdicts are not used"] if line else [])


@pytest.mark.parametrize(
    ("field", "value"),
    [("verdict", 1), ("verdict", "yes"), ("verdict", None), ("answer", "altered"), ("gold", 3), ("reported", "other")],
)
def test_an_altered_line_is_not_used(tmp_path: Path, field: str, value: object) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    entry = json.loads(kept.path.read_text())
    kept.path.write_text(json.dumps({**entry, field: value}) + "\n")
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.damaged, len(again)) == (None, 1, 0)


def test_another_verdict_in_a_whole_line_is_not_used_and_told_once(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    kept.put(TWO, False)
    kept.path.write_text(kept.path.read_text().replace('"verdict": true', '"verdict": false'))
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO)) == (None, False)
    assert again.notes == ["1 damaged lines of the cache of verdicts are not used"]


def test_no_flipped_bit_gives_another_verdict(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True, "r")
    whole = kept.path.read_bytes()
    for place in range(len(whole)):
        kept.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        again = VerdictCache(tmp_path, JUDGE)
        again.reported = "r"
        assert again.get(ONE) in {None, True}


def test_a_line_without_its_digest_is_not_used(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    entry = json.loads(kept.path.read_text())
    del entry["digest"]
    kept.path.write_text(json.dumps(entry) + "\n")
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.damaged) == (None, 1)


def test_what_another_process_writes_is_found(tmp_path: Path) -> None:
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


def test_two_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
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


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_taken_for_kept(tmp_path: Path) -> None:
    (tmp_path / "verdicts").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cache of verdicts could not be read"):
        VerdictCache(tmp_path, JUDGE)
    (tmp_path / "verdicts").unlink()
    kept = VerdictCache(tmp_path, JUDGE)
    (tmp_path / "verdicts").write_text("")
    with pytest.raises(UserError, match=r"could not be written.*CONFBENCH_CACHE"):
        kept.put(ONE, True)
    assert kept.get(ONE) is None


def test_a_disk_that_fills_up_in_the_middle_of_a_line_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(UserError, match="no space left"):
            kept.put(TWO, True)
    kept.put(TWO, False)
    again = VerdictCache(tmp_path, JUDGE)
    assert (again.get(ONE), again.get(TWO), again.damaged) == (True, False, 1)


def test_each_verdict_is_on_the_disk_when_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, True)
    kept.put(TWO, True)
    assert synced == [kept.path, kept.path.parent, kept.path]


def test_what_is_missing_is_asked_once_and_never_where_it_is_empty(tmp_path: Path) -> None:
    kept = VerdictCache(tmp_path, JUDGE)
    kept.put(ONE, False)
    empty = [JudgeCase("q", "gold", ""), JudgeCase("q", "gold", " \n")]
    assert cases_to_judge([ONE, TWO, *empty, TWO], kept) == [TWO]


def test_several_right_answers_have_verdicts_of_their_own_and_single_ones_keep_theirs(tmp_path: Path) -> None:
    judge = {"kind": "x"}
    kept = VerdictCache(tmp_path, judge)
    several = replace(ONE, others=("also",))
    kept.put(ONE, verdict=False)
    kept.put(several, verdict=True)
    again = VerdictCache(tmp_path, judge)
    assert [again.get(case) for case in (ONE, several, replace(ONE, others=("other",)))] == [False, True, None]
    first, second = map(json.loads, again.path.read_text(encoding="utf-8").splitlines())
    assert "others" not in first
    assert second["others"] == ["also"]
    before = {"judge": judge, "reported": None, "question": "q", "gold": "gold", "answer": "answer"}
    assert first["key"] == key_of(before)  # as verdicts were kept before there could be several
