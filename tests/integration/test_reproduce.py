"""`bench reproduce`: the plan of a paper's comparison, and a small one that is run, found and not run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import registry
from bench.api import Format
from bench.run import paper_runs as reproduction
from bench.run.paper_runs import PaperRuns, read_grid
from tests.integration.conftest import ROOT
from tests.kit.place import Place

FIGURES = ROOT / "benchmarks" / "cost_model" / "figures.json"
MODELS = ["llama8b", "qwen14b", "mistral24b", "qwen32b"]
GRID = """
reference = "arXiv:1234.56789"
preset = "demo"
methods = ["flat"]
models = ["tiny"]
tasks = ["isles"]
seeds = [0, 1]
judge = "openai"
judge_model = "gpt-4o-mini"
characters = 100
accelerator = "abacus, computed"
[computed.tiny]
hours = 0.25
tokens = 2_000_000
"""
PLUGIN = '''
"""A method and a task of a small paper."""

from dataclasses import dataclass

import numpy as np

from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Question, Task, TaskCard, TokenScores, method, task


@method("flat")
@dataclass(kw_only=True, eq=False)
class Flat(ConfidenceMethod):
    """Probability of the first token."""

    reference = "arXiv:1234.56789"
    needs = Needs(predict=frozenset({TokenScores()}))
    presets = {"paper": {}, "demo": {}, "fixed": {}}

    def predict(self, batch):
        """One number for each answer, shape (n,)."""
        return np.linspace(0.1, 0.9, len(batch.ids))


@task("isles")
class Isles(Task):
    """Islands."""

    format = Format.CHOICE
    card = TaskCard(
        license="CC0-1.0", version=1, splits={"test": "test"}, sizes={"test": 4}, options=(2, 2), why="Four islands.",
    )
    style = PromptStyle(header="Questions about {label}.", footer="Answer.", context="{text}\\n{options}")

    def questions(self, split):
        """Four of them."""
        for i in range(4):
            yield Question(f"isles/{split}/{i}", "isles", f"Is isle {i} dry?", ("yes", "no"), i % 2)
'''


def plan(place: Place, *words: str) -> Any:
    return json.loads(place.done("reproduce", *words, "--dry-run", "--json").stdout)


@pytest.fixture
def paper(place: Place) -> list[str]:
    """Words that name the small paper: its method, and the file that it is in."""
    place.write("grid.toml", GRID)
    return ["flat", "--plugin", str(place.write("flat.py", PLUGIN)), "--out", str(place / "results")]


def test_paper_plan_has_each_cell_and_its_cost(place: Place) -> None:
    found = plan(place, "ccps", "--out", "there")
    runs, tested = found["runs"], 14_042 + 4_183
    assert [run["model"] for run in runs] == MODELS
    assert {(run["cells"], run["there"]) for run in runs} == {(11 * 5, 0)}
    assert {(run["graded"], run["compared_at_most"]) for run in runs} == {(tested + 18_534 + 2_000, 10 * tested)}
    assert all(35e6 < run["judge_tokens_at_most"] < 75e6 for run in runs)
    assert found["commands"][1] == (
        "bench run --method paper --model qwen14b --task mmlu-choice --task mmlu-pro-choice --task mmlu-oe"
        " --task medmcqa-choice --task medmcqa-oe --preset paper --seed 0 --judge openai --judge-model gpt-4o-mini"
        " --out there"
    )


def test_paper_plan_begins_with_the_paper(place: Place) -> None:
    said = place.done("reproduce", "ccps", "--dry-run").stdout.splitlines()
    assert said[0].endswith(": 11 methods, 5 tasks, preset paper")
    assert said[0].startswith(read_grid("ccps", registry.methods()).reference)


@pytest.mark.parametrize("model", MODELS)
def test_paper_hours_are_of_the_cost_model(model: str) -> None:
    computed = read_grid("ccps", registry.methods()).computed[model]
    stages = json.loads(FIGURES.read_text(encoding="utf-8"))["models"][model].values()
    assert computed.hours == pytest.approx(sum(stage["8192"]["seconds"] for stage in stages) / 3600, abs=0.01)
    assert computed.tokens == pytest.approx(sum(stage["8192"]["tokens"] for stage in stages), rel=0.001)


@pytest.mark.parametrize("words", ["--judge match", "--judge=match", "mine.toml"])
def test_paper_plan_of_one_model_and_judge(place: Place, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    place.write("mine.toml", 'judge = "match"\n')
    monkeypatch.chdir(place.folder)
    found = plan(place, "ccps", "--models", "qwen14b", *words.split(), "--out", "there")
    (run,) = found["runs"]
    assert (run["graded"], run["compared_at_most"], run["judge_tokens_at_most"]) == (0, 0, 0)
    assert found["commands"][0].endswith(f"--seed 0 {words} --out there")


def test_judge_model_of_a_run_file_is_kept(place: Place) -> None:
    mine = place.write("mine.toml", 'judge = "openai"\njudge-model = "mine"\n')
    found = plan(place, "ccps", "--models", "qwen14b", str(mine))
    assert found["commands"][0].endswith(f"--judge openai --judge-model mine {mine}")


def test_paper_hours_are_told_without_an_accelerator(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)  # such as an Apple GPU, which no run takes
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("subprocess.Popen", lambda *_: pytest.fail("it was run"))
    said = place.refused("reproduce", "ccps", "--out", place / "out")
    assert "118 hours on one H100, computed; this machine has no accelerator" in said
    assert "--device cpu" in said


@pytest.mark.parametrize(
    ("wrong", "said"), [("seeds = [0, 1]", "seeds"), ('preset = "demo"', "preset"), ("hours = 0.25", "hours")]
)
def test_grids_that_are_not_whole_are_refused(place: Place, paper: list[str], wrong: str, said: str) -> None:
    place.write("grid.toml", GRID.replace(wrong, ""))
    told = place.refused("reproduce", *paper, "--dry-run")
    assert "is not as it must be" in told
    assert said in told


def test_terminal_shows_costs_and_commands(place: Place, paper: list[str]) -> None:
    out = place.done("reproduce", *paper, "--dry-run", "--judge", "match").stdout
    assert "one abacus, computed: 0.5 in all" in out
    assert "0 of 1" in out
    assert out.count("\n  bench run --method flat --model tiny --task isles --preset demo --seed ") == 2


@pytest.mark.parametrize("url", ["--judge-url={}", "--judge-url {}"])
def test_commands_of_a_paper_show_no_password(place: Place, paper: list[str], url: str) -> None:
    words = url.format("https://me:secret1@host/v1?key=secret2").split()
    out = place.done("reproduce", *paper, "--dry-run", "--judge", "openai", *words).stdout
    assert "https://host/v1" in out
    assert "secret" not in out


@pytest.mark.slow
def test_runs_that_are_there_are_not_run_again(place: Place, paper: list[str]) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bench.cli", "reproduce", *paper, "--device", "cpu", "--judge", "match"]
        env = {**os.environ, **place.env, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=place.folder)

    first = run()
    assert first.returncode == 0, first.stderr
    assert "[2 of 2] bench run --method flat" in first.stdout
    for path in (place / "results").rglob("*--s1.json"):
        path.unlink()  # as if it had been stopped between the two
    (left,) = plan(place, *paper, "--judge", "match")["commands"]
    assert "--seed 1" in left
    again = run()
    assert "[1 of 1]" in again.stdout
    assert "1 were there before" in again.stdout
    assert plan(place, *paper, "--judge", "match")["commands"] == []
    assert "Nothing is left to run" in place.done("reproduce", *paper, "--dry-run", "--judge", "match").stdout


@pytest.mark.usefixtures("paper")
def test_other_results_do_not_count_as_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.methods([tmp_path / "flat.py"])
    task = registry.tasks([tmp_path / "flat.py"]).get("isles")
    work = PaperRuns(
        grid=read_grid("flat", known), methods={"flat": known.get("flat")()}, tasks={"isles": task},
        models=("tiny",), judge="openai", judge_model="gpt-4o-mini", out=tmp_path,
    )  # fmt: skip
    row = {"method": "flat", "task": "isles", "model": "tiny", "seed": 0, "preset": "demo", "status": "ok"}
    row |= {"deviations": {}, "config": {}, "judge": None, "tuning": None, "dtype": "float32", "provenance": {}}

    def there(**other: object) -> int:
        monkeypatch.setattr(reproduction, "read_all", lambda _: [SimpleNamespace(**row | other)])
        return replace(work).runs[0].there

    assert (work.models[0], work.grid.seeds[0], there()) == ("tiny", 0, 1)
    others = ({"preset": "fixed"}, {"deviations": {"flat.a": 1}}, {"status": "failed"}, {"seed": 1}, {"model": "x"},
              {"task": "atlas-oe"}, {"tuning": {"n": 4}}, {"config": {"train_limit": "64"}},
              {"config": {"train_on": "far:train"}}, {"config": {"think_budget": 64}})  # fmt: skip
    assert [there(**other) for other in others] == [0] * len(others)
    work = replace(work, train_limit="64")
    limited = {"config": {"train_limit": "64"}}
    assert [there(), there(**limited)] == [1, 0]  # it reads no label
    monkeypatch.setattr(known.get("flat"), "output", "score")
    assert [there(), there(**limited)] == [0, 1]


@pytest.mark.usefixtures("paper")
def test_results_of_another_judge_or_dtype_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.methods([tmp_path / "flat.py"])
    task: Any = registry.tasks([tmp_path / "flat.py"]).get("isles")
    monkeypatch.setattr(task, "format", Format.OPEN)
    work = PaperRuns(
        grid=replace(read_grid("flat", known), models=("qwen14b",)), methods={"flat": known.get("flat")()},
        tasks={"isles": task}, models=("qwen14b",), judge="openai", judge_model="gpt-4o-mini", out=tmp_path,
    )  # fmt: skip
    row = {"method": "flat", "task": "isles", "model": "qwen14b", "seed": 0, "preset": "demo", "status": "ok"}
    row |= {"deviations": {}, "tuning": None, "dtype": "bfloat16", "provenance": {"hardware": {"device": "cuda:0"}}}

    def there(kind: str, named: str, asked: dict[str, str], **other: object) -> int:
        """Number of cells that count, of one whose judge names itself by kind and model."""
        other = {"judge": f"{kind} {named}, yes-no", "config": asked, **other}
        monkeypatch.setattr(reproduction, "read_all", lambda _: [SimpleNamespace(**row | other)])
        return replace(work).runs[0].there

    paper = ("openai", "gpt-4o-mini-2024-07-18 at https://host/v1")  # as the server reports it
    asked = {"judge": "openai", "judge_model": "gpt-4o-mini"}
    assert [there(*paper, asked), there(*paper, {"judge": "openai"})] == [1, 1]  # named, and the default
    assert there("openai", "gpt-4o", {**asked, "judge_model": "gpt-4o"}) == 0
    assert there("openai", "gpt-4o-mini-tuned", {**asked, "judge_model": "gpt-4o-mini-tuned"}) == 0
    assert there("match", "", {}) == 0
    on_cpu = {"provenance": {"hardware": {"device": "cpu"}}}
    others = ({"dtype": "float16"}, {"dtype": "float32"}, {"dtype": "float32", **on_cpu}, {"model": "llama8b"})
    assert [there(*paper, asked, **other) for other in others] == [0, 0, 1, 0]  # float32 is the default of a CPU
    work = replace(work, judge="match")
    assert [there("match", "", {}), there(*paper, asked)] == [1, 0]
    work = replace(work, judge="hf", judge_model="org/judge")
    local = {"judge": "hf", "judge_model": "org/judge"}
    assert there("hf", "org/judge@0123456789ab", local) == 1
    assert there("hf", "org/judge-2@0123456789ab", {**local, "judge_model": "org/judge-2"}) == 0
