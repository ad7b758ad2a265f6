"""What the commands print: lists, plans that write nothing, JSON that parses, whole help, seeds one by one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from bench.cli import app, check, exit_codes
from bench.cli.check_process import check_file
from bench.testing import CheckResult
from tests.fixtures.whole_run import WholeRun
from tests.kit.command import bench
from tests.kit.place import Place


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ptrue", ["arXiv:2207.05221", "QueryLogits"]),
        ("ccps", ["arXiv:2505.21772", "Probing Perturbed Representation Stability (CCPS)"]),
        ("atlas-choice", ["choice", "options", "footer"]),
        ("mmlu-choice", ["cais/mmlu", "MIT", "c30699e8356da336a370243923dbaf21066bb9fe"]),
        ("tiny", ["float32", "demo"]),
        ("protocol", ["shots", "ece_bins", "fixed", "refcode"]),
    ],
)
def test_show_tells_the_same_as_table_and_json(name: str, words: list[str]) -> None:
    shown, data = bench("show", name), bench("show", name, "--json")
    assert shown.returncode == data.returncode == 0
    assert json.loads(data.stdout)["kind"] in {"method", "task", "model", "protocol"}
    for word in words:
        assert word in shown.stdout
        assert word in data.stdout


def test_list_alone_lists_methods_models_and_tasks() -> None:
    lines, data = bench("list").stdout.splitlines(), json.loads(bench("list", "--json").stdout)
    assert list(data) == ["methods", "models", "tasks"]
    named = [(kind, record["name"]) for kind, records in data.items() for record in records]
    assert [tuple(line.split("\t")[:2]) for line in lines] == named
    for kind, records in data.items():
        assert records == json.loads(bench("list", kind, "--json").stdout)
        table = bench("list", kind).stdout
        assert all(record["name"] in table for record in records)
    assert {"ptrue", "ccps", "tiny", "llama8b", "atlas-choice", "mmlu-choice"} <= {name for _, name in named}


def test_method_shows_its_constants_where_asked() -> None:
    short, whole = (bench("show", "CCPS", *more, env={"COLUMNS": "100"}).stdout for more in ([], ["--constants"]))
    assert len(short.splitlines()) <= 24
    assert "shows 24 constants and their sources, 6 things not reproduced" in short
    for part in ("radius", "20.0", "deviates", "A hinge on the difference"):
        assert part not in short
        assert part in whole


def test_example_is_the_whole_prompt_with_its_answer() -> None:
    shown = bench("show", "atlas-choice", "--example", 3)
    data = json.loads(bench("show", "atlas-choice", "--example", 3, "--json").stdout)
    assert shown.returncode == 0
    assert list(data) == ["id", "system", "user", "right answer"]
    assert data["id"] == "atlas/test/3"
    assert data["user"].count("Answer:") == 6  # five exemplars and the question
    assert data["user"].endswith("Answer:")
    assert len(data["right answer"]) == 1
    assert all(part in shown.stdout for part in data.values())


def options(command: Any) -> Iterator[tuple[Any, Any]]:
    """Every command below one, and each of its options and arguments."""
    for each in getattr(command, "commands", {}).values():
        yield from options(each)
    yield from ((command, parameter) for parameter in command.params)


def test_help_explains_every_option() -> None:
    found = list(options(typer.main.get_command(app.app)))
    assert len(found) > 100
    assert not [f"{command.name} {each.name}" for command, each in found if not each.help and not each.hidden]
    said = bench("run", "--help").stdout
    assert all(name in said for command, each in found if command.name == "run" for name in each.opts)


def test_help_is_shown_without_a_command() -> None:
    result = bench()
    assert all(f" {word} " in result.stdout + result.stderr for word in ("run", "list", "show", "table", "check"))


# --- run --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def words(small_model: Path, rivers: Path) -> list[object]:
    """Options of a run of two methods, one of them in a file of its own, on a model that lies in a folder."""
    return ["--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, here=True)


@pytest.fixture(scope="module")
def ran(small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("ran"), here=True)
    place.run("--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers)
    return place


def test_plan_is_printed_and_nothing_is_written(place: Place, words: list[object]) -> None:
    result = place.run(*words, "--dry-run")
    assert result.stdout == ""
    assert "Plan: ptrue, echo on" in result.stderr
    for part in ("rivers/test: 310 questions", "rivers/train: 279", "rivers/validation: 31", "shards to compute"):
        assert part in result.stderr
    assert "1 fit and 2 predictions" in result.stderr
    assert list(place.folder.iterdir()) == []


def test_plan_knows_what_is_stored(whole_run: WholeRun) -> None:
    said = json.loads(bench(*whole_run.words, "--dry-run", "--json", env=whole_run.env).stdout)
    assert said["rows"] == said["paths"] == []
    reads = [line for line in said["plan"] if line.startswith("read")]
    assert len(reads) == 3
    assert all("all stored" in line for line in reads)


def test_json_goes_to_stdout_and_progress_to_stderr(ran: Place, words: list[object]) -> None:
    result = ran.run(*words, "--json", out="again")
    said = json.loads(result.stdout)
    assert [(row["method"], row["status"]) for row in said["rows"]] == [("ptrue", "ok"), ("echo", "ok")]
    assert all(Path(path).is_file() for path in said["paths"])
    assert result.stderr.startswith("Plan: ")
    assert "all stored" in result.stderr
    for row in said["rows"]:
        before = ran.rows()[row["method"]]
        assert (row["metrics"], row["per_subject"]) == (before["metrics"], before["per_subject"])


def test_results_name_no_path_of_this_machine(ran: Place, whole_run: WholeRun) -> None:
    for path in (*ran.folder.glob("out/**/*.json"), *whole_run.cells().values()):
        text = path.read_text(encoding="utf-8")
        assert str(ran.folder) not in text
        assert str(whole_run.folder) not in text
        assert str(Path.home()) not in text or str(Path.home()) == "/"


def test_run_ends_with_table_paths_and_next_commands(ran: Place, words: list[object], rivers: Path) -> None:
    result = ran.run(*words, "--limit", 20, out="a fourth")
    assert "AUROC" in result.stdout
    for path in (ran / "a fourth").glob("**/rivers/*--*.json"):
        assert f"wrote {path}" in result.stdout
    assert f"note: --plugin {rivers}: the code in this file was run" in result.stderr
    lines = result.stdout.partition("next: ")[2].splitlines()
    table, page = (shlex.split(re.split(" {2,}", line.strip())[0]) for line in lines)
    assert "ptrue" in ran.done(*table[1:]).stdout
    ran.done(*page[1:], "--out", ran / "fourth.html")


def test_several_seeds_share_readings(whole_run: WholeRun) -> None:
    found = [json.loads(path.read_text("utf-8")) for path in (whole_run.out / "partial").rglob("*--s*.json")]
    assert sorted((row["method"], row["seed"]) for row in found) == [
        ("pik", 1), ("pik", 2), ("ptrue", 1), ("ptrue", 2),
    ]  # fmt: skip
    assert whole_run.stderr.startswith("Seeds 2, 1, one after the other")
    first, second = whole_run.stderr.split("Plan: ")[1:]
    assert "seed 2\n" in first
    assert "seed 1\n" in second
    assert "shards to compute" in first
    assert "shards to compute" not in second
    assert whole_run.loads == 1
    again = json.loads(bench(*whole_run.words_of_seeds, "--json", "--dry-run", env=whole_run.env).stdout)
    assert {line.partition(":")[0] for line in again["plan"]} == {"seed 2", "seed 1"}
    assert again["stopped"] == []


def test_impossible_seed_is_told_and_others_are_stored(ran: Place, words: list[object]) -> None:
    result = ran.run(*words, "--limit", 20, "--seed", "0,-1", out="seeds", code=2)
    assert "bench: seed -1: --seed: expected at least 0, got -1" in result.stderr
    assert "What the other seeds gave is stored." in result.stderr
    assert {row["seed"] for row in ran.rows("seeds").values()} == {0}
    assert "ptrue" in result.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_results_that_git_tracks_need_overwrite(ran: Place, small_model: Path, rivers: Path) -> None:
    words = ["--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--limit", 20]
    ran.run(*words, "--recalibrate", "platt", "--seed", 1, out="kept")
    (tracked,) = (ran / "kept").glob("**/ptrue+platt--*--s1--*.json")
    for arguments in (["init", "--quiet"], ["add", tracked]):
        subprocess.run(["git", "-C", ran / "kept", *map(str, arguments)], check=True)
    before = tracked.stat().st_mtime_ns
    again = [*words, "--recalibrate", "platt", "--seed", "0,1"]
    refused = ran.run(*again, out="kept", code=2)
    assert refused.stderr.splitlines()[-1] == (
        f"bench: {tracked}: git tracks this, and the run would change it; name another folder with --out, or replace"
        " what is there with --overwrite"
    )
    assert not refused.stdout
    assert tracked.stat().st_mtime_ns == before
    assert {row["seed"] for row in ran.rows("kept").values()} == {1}  # before anything is computed for another seed
    ran.run(*words, "--seed", 1, out="kept")  # not the one that is tracked
    ran.run(*again, "--overwrite", out="kept")
    assert tracked.stat().st_mtime_ns != before


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_questions_that_git_tracks_need_overwrite(ran: Place, small_model: Path, rivers: Path) -> None:
    """Where a run would add some or change their texts."""
    words = ["--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--limit"]
    ran.run(*words, 20, out="asked")
    (tracked,) = (ran / "asked/questions").iterdir()
    for arguments in (["init", "--quiet"], ["add", tracked]):
        subprocess.run(["git", "-C", ran / "asked", *map(str, arguments)], check=True)
    before = tracked.stat().st_mtime_ns
    for other in ([30], [20, "--set", "protocol.letters=WXYZ"]):
        refused = ran.run(*words, *other, out="asked", code=2)
        assert refused.stderr.splitlines()[-1].startswith(f"bench: {tracked}: git tracks this, and the run would")
        assert not refused.stdout
    ran.run(*words, 10, out="asked")
    assert tracked.stat().st_mtime_ns == before
    ran.run(*words, 30, "--overwrite", out="asked")
    assert tracked.stat().st_mtime_ns != before


def test_results_are_in_runs_by_default(
    small_model: Path, rivers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    told = "bench: results folder 'runs' does not exist; run something first: bench run --method all"
    for command in ("table", "report", "guard"):
        assert bench(command, env=env).stderr == f"{told}\n"
    (tmp_path / "results").mkdir()
    assert bench("table", env=env).stderr == f"{told}, or show those of another folder: --results results\n"
    named = ["--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers]
    assert bench("run", *named, "--limit", 4, env=env).returncode == 0
    assert list((tmp_path / "runs").glob("partial/*/rivers/ptrue--*.json"))
    assert "ptrue" in bench("table", env=env).stdout


def test_quiet_prints_results_alone_and_verbose_decisions(place: Place, words: list[object]) -> None:
    words = ["run", *words, "--limit", 20, "--train-limit", 40, "--out", place / "out"]
    verbose, quiet = place.bench(*words, "-v"), place.bench("-q", *words)
    assert quiet.stderr == ""
    assert quiet.stdout == verbose.stdout
    decided = [line for line in verbose.stderr.splitlines() if line.startswith("decided: ")]
    for part in ("device cpu, dtype float32", "token budget 1,024", "rivers/test: 0 of 1 shards", "weights ",
                 "rivers/test: methods need Hidden(at=At.PROMPT_END), QueryLogits()",
                 "echo on rivers/train: to be fitted"):  # fmt: skip
        assert any(part in line for line in decided), part
    plan = place.bench("-q", *words, "--dry-run")
    assert plan.stderr == ""
    assert "then 1 fit and 2 predictions" in plan.stdout
    assert "tune" not in plan.stdout


def test_numbers_of_labels_are_cells_of_their_own(ran: Place, words: list[object]) -> None:
    """What reads no label is one cell; a run of another number finds it, and its rows, and overwrites none."""
    said = {}
    for limit in ("100", "400+9"):
        result = ran.run(
            *words, "--limit", 40, "--recalibrate", "platt", "--train-limit", limit, "--json", out="limited"
        )
        said[limit] = result.stderr
    assert "rivers/train: 90 of 279 questions are learned from (--train-limit 100)" in said["100"]
    assert "rivers/validation: 10 of 31 questions are learned from" in said["100"]
    assert "rivers/train: 279 of 279 questions are learned from" in said["400+9"]
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((ran / "limited").rglob("*.json"))]
    assert sorted((row["method"], row["config"].get("train_limit", "")) for row in rows) == [
        ("echo", "100"), ("echo", "400+9"), ("echo+platt", "100"), ("echo+platt", "400+9"),
        ("ptrue", ""), ("ptrue+platt", "100"), ("ptrue+platt", "400+9"),
    ]  # fmt: skip
    assert all(row["deviations"] == {} for row in rows)
    learned = {row["config"]["train_limit"]: row["labels_seen"]["train"] for row in rows if row["method"] == "echo"}
    assert 0 < learned["100"] <= 90 < learned["400+9"]


def test_numbers_of_labels_give_lts_the_validation_part(place: Place) -> None:
    asked = ("--method", "lts", "--model", "tiny", "--task", "atlas-choice", "--limit", 8)
    place.run(*asked, "--train-limit", 100)
    assert place.row()["labels_seen"] == {"train": 0, "validation": 20, "gold": 0}


def test_interrupt_leaves_one_line_that_says_more(
    ran: Place, words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal leaves this process alive, and heard as before: `unit/cli/test_exit_codes.py` has the rest."""
    monkeypatch.setattr(exit_codes, "_CLEANUP_SECONDS", 1e6)  # after which it would be ended
    before, started = signal.getsignal(signal.SIGINT), tmp_path / "started"

    def press() -> None:
        until = time.monotonic() + 60
        while not started.exists() and time.monotonic() < until:
            time.sleep(0.02)
        if started.exists():
            os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    asked = ("--method", "echo", *words[2:], "--seed", 7)
    result = ran.run(*asked, out="interrupted", code=130, env={"PAUSE": str(started)})
    presses.join()
    signal.signal(signal.SIGINT, before)
    assert result.stderr.splitlines()[-1].startswith("bench: interrupted")
    assert "run the same command to go on" in result.stderr
    assert not (ran / "interrupted").exists()


# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_check_fails_a_dishonest_method_in_both_forms(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    found_in: dict[Path, list[CheckResult]] = {}

    def once(path: Path, *others: Any) -> list[CheckResult]:
        """A check starts a process: that of a file whose results are there is shown again in another form."""
        found_in[path] = found_in.get(path) or check_file(path, *others)
        return found_in[path]

    monkeypatch.setattr(check, "check_file", once)
    path = place.write("plugged.py", '''
import numpy as np
from bench.api import ConfidenceMethod, Needs, QueryLogits, method

@method("plugged")
class Plugged(ConfidenceMethod):
    """The probability of yes."""
    reference = "arXiv:2207.05221"
    needs = Needs(predict=frozenset({QueryLogits()}))

    def predict(self, batch):
        logits = batch[QueryLogits()].astype(float)
        return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])) * 2
''')  # fmt: skip
    found = json.loads(place.done("check", path, "--json", code=1).stdout)
    assert all(set(line) == {"check", "ok", "message"} for line in found)
    assert 0 < sum(line["ok"] for line in found) < len(found)
    said = f"{sum(line['ok'] for line in found)} of {len(found)} checks passed"
    assert said in place.done("check", path, code=1).stdout
