"""What a newcomer does first, with the commands as they are shown: a table, a method, confidences of own answers.

Each test begins in an empty folder with an empty home. Options that are put behind a command only make it small.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT
from tests.integration.test_readme import TEXTS, blocks, lines, parse
from tests.kit.command import bench

Type = Callable[..., str]

SMALL = ("--limit", "20", "--task", "atlas-choice", "--train-limit", "64")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands are typed, and an empty home beside it."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith(("CONFBENCH_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path / "here"


@pytest.fixture
def typed(place: Path) -> Type:
    """Types a command and gives what it prints; it must end well."""

    def type_in(command: str, *more: str) -> str:
        program, *words = shlex.split(command)
        assert Path(program).name == "bench"
        done = bench(*words, *more)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    return type_in


def commands_of_make_demo() -> list[str]:
    """The command that `make demo` starts, and those that it prints."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
    return re.findall(r"\$\(BIN\)/(bench .+?)(?:   .*|'|$)", recipe, re.MULTILINE)


def row_of(name: str, table: str) -> list[str]:
    """Words of a method's row, without its marks; a line of the verdict may begin with the name, too."""
    begin = rf"{re.escape(name)}[¹²³⁴⁵⁶⁷⁸⁹˒]* +[▸\d]"
    (row,) = (line.split() for line in table.splitlines() if re.match(begin, line))
    return row


def has_numbers(row: list[str]) -> bool:
    """Whether a row has metrics, and no reason why there are none."""
    return bool(re.search(r"\d\.\d", " ".join(row[1:])))


def test_make_demo_writes_where_git_looks_away() -> None:
    run, *own = map(shlex.split, commands_of_make_demo())
    folder = run[run.index("--out") + 1]
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{folder}/tiny"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert [words[1] for words in own] == ["new", "run"]
    assert own[1][own[1].index("--out") + 1] == folder
    assert own[1][own[1].index("--method") + 1] == own[0][own[0].index("method") + 1]
    for words in (run, *own):
        parse(shlex.join(words))


@pytest.mark.slow
def test_demo_leads_to_a_table_of_methods(typed: Type, place: Path) -> None:
    demo, new, run = commands_of_make_demo()
    assert "--method all " in demo
    # two of its methods: IT and CT train for minutes, whatever the limit
    first = typed(demo.replace("--method all", "--method ccps,ptrue"), *SMALL)
    assert all(has_numbers(row_of(name, first)) for name in ("ccps", "ptrue")), first
    assert (place.parent / "home" / ".cache" / "confbench").is_dir(), "it read a cache that this home has not"
    (check,) = re.findall("^  (bench check .+)", typed(new), re.MULTILINE)
    remark, passed = typed(check).splitlines()
    assert remark == "note   my-method-choice reference unpublished: it has no reference"
    assert re.fullmatch(r"(\d+) of \1 checks passed; -v lists each", passed)
    typed(run, *SMALL)
    beside = typed("bench table --results demo --partial")
    assert all(has_numbers(row_of(name, beside)) for name in ("ccps", "ptrue", "my-method")), beside


@pytest.mark.slow
def test_method_of_the_readme_is_compared(typed: Type, place: Path) -> None:
    (code,) = blocks("python", TEXTS["README.md"])
    check, run = [line for line in lines("text", "README.md") if "my_margin.py" in line]
    (place / "my_margin.py").write_text(code, encoding="utf-8")
    assert "checks passed" in typed(check)
    told = typed(run, "--limit", "60", "--train-limit", "64", "--set", "ccps.classifier_steps=20")
    assert has_numbers(row_of("my-margin", told)), told


@pytest.mark.slow
def test_commands_of_bench_new_lead_to_a_row(typed: Type, place: Path) -> None:
    told = typed("bench new method my-method")
    check, run = re.findall(r"^  (bench .+)$", told, flags=re.MULTILINE)
    path = place / "my_method.py"
    written = path.read_text(encoding="utf-8")
    own = re.sub(r"^(        return )(.+)$", r"\g<1>2.0 * (\2)", written, count=1, flags=re.MULTILINE)
    assert "return 2.0 * (" in own
    path.write_text(own, encoding="utf-8")
    typed(check)
    told = typed(run, *SMALL)
    assert has_numbers(row_of("my-method", told)), told


@pytest.mark.slow
def test_own_answers_are_scored_with_a_head(typed: Type, place: Path) -> None:
    run, _, score, *_ = lines("console", "heads.md")
    (questions,) = blocks("json", TEXTS["heads.md"])
    (place / "questions.jsonl").write_text(questions, encoding="utf-8")
    ended = typed(run.replace("lts,ccps", "lts"), *SMALL[:2])
    (told,) = re.findall(r"(bench score .+?)  ", ended)
    named = re.compile(r"--head (\S+)")
    head = named.search(told)
    assert head is not None
    assert named.sub("", told) == named.sub("", score)
    scored = [json.loads(line) for line in typed(told).splitlines()]
    assert len(scored) == len(questions.splitlines())
    assert [row["answer"] for row in scored[:2]] == ["b", "a"]
    assert all(0 <= row["confidence"] <= 1 for row in scored)

    (code,) = blocks("python", TEXTS["heads.md"])
    code = re.sub(r'load_head\(".+?"\)', f'load_head("{head[1]}")', code).replace("\nhead(", "\nvalue = head(")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(value)"], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(scored[0]["confidence"], abs=1e-4)


def test_own_answers_are_compared(typed: Type, place: Path) -> None:
    (command,) = (line for line in lines("text", "README.md") if "--answers" in line)
    (question,) = blocks("json", TEXTS["compare.md"])
    asked = [json.loads(question) | {"id": f"q{i}"} for i in (16, 17)]
    answer = re.search(
        r"of `([^`]+)` the final part is `B`, and `final_start` says that it begins at (\d+)", TEXTS["answers.md"]
    )
    assert answer is not None
    given = [{"id": "q16", "text": "a"}, {"id": "q17", "text": answer[1], "final_start": int(answer[2])}]
    for name, rows in (("my.jsonl", asked), ("answers.jsonl", given)):
        (place / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    told = " ".join(typed(command.replace("llama8b", "tiny").replace("untrained", "ptrue")).split())
    assert "n = 2 questions" in told
    assert "answers 50.0 % of them right" in told
    assert "could not be read" not in told
