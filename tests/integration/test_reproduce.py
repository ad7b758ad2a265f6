"""`bench reproduce`: the plan of a paper's comparison, and a small one that is run, found and not run again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench import registry
from bench.api import UserError
from bench.cli.app import app
from bench.run import paper_runs as reproduction
from bench.run.paper_runs import PaperRuns, read_grid

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "tests" / "performance" / "cost_model" / "figures.json"
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


def called(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words])


def plan(*words: str) -> dict[str, object]:
    result = called(*words, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def paper(tmp_path: Path) -> list[str]:
    """Words that name the small paper: its method, and the file that it is in."""
    (tmp_path / "flat.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "grid.toml").write_text(GRID, encoding="utf-8")
    return ["flat", "--plugin", str(tmp_path / "flat.py"), "--out", str(tmp_path / "results")]


def test_the_plan_of_the_paper_has_each_cell_and_what_it_costs(tmp_path: Path) -> None:
    found = plan("ccps", "--out", str(tmp_path))
    runs = found["runs"]
    assert [run["model"] for run in runs] == ["llama8b", "qwen14b", "mistral24b", "qwen32b"]
    assert {(run["cells"], run["there"]) for run in runs} == {(11 * 5, 0)}
    tested = 14_042 + 4_183
    assert {(run["graded"], run["compared_at_most"]) for run in runs} == {(tested + 18_534 + 2_000, 10 * tested)}
    assert all(5 < run["usd_at_most"] < 12 for run in runs)
    assert found["commands"][1] == (
        f"bench run --method paper --model qwen14b --task mmlu-choice --task mmlu-pro-choice --task mmlu-oe"
        f" --task medmcqa-choice --task medmcqa-oe --preset paper --seed 0 --judge openai --judge-model gpt-4o-mini"
        f" --out {tmp_path}"
    )


def test_the_plan_for_people_begins_with_the_paper_and_what_is_run(tmp_path: Path) -> None:
    said = called("ccps", "--dry-run", "--out", str(tmp_path)).stdout.splitlines()
    assert said[0].endswith(": 11 methods, 5 tasks, preset paper")
    assert said[0].startswith(read_grid("ccps", registry.methods()).reference)
    assert any(re.fullmatch(r"USD are those of gpt-4o-mini at the prices of \d{4}-\d\d-\d\d\.", line) for line in said)


@pytest.mark.parametrize("model", ["llama8b", "qwen14b", "mistral24b", "qwen32b"])
def test_its_hours_and_tokens_are_those_of_the_cost_model(model: str) -> None:
    computed = read_grid("ccps", registry.methods()).computed[model]
    stages = json.loads(FIGURES.read_text(encoding="utf-8"))["models"][model].values()
    assert computed.hours == pytest.approx(sum(stage["8192"]["seconds"] for stage in stages) / 3600, abs=0.01)
    assert computed.tokens == pytest.approx(sum(stage["8192"]["tokens"] for stage in stages), rel=0.001)


def test_another_judge_costs_nothing_and_models_can_be_picked(tmp_path: Path) -> None:
    found = plan("ccps", "--models", "qwen14b", "--judge", "match", "--out", str(tmp_path))
    (run,) = found["runs"]
    assert (run["graded"], run["compared_at_most"], run["usd_at_most"]) == (0, 0, 0.0)
    assert found["commands"][0].endswith(f"--seed 0 --judge match --out {tmp_path}")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ptrue"], "No grid is known of the paper of ptrue. Methods with one: ccps."),
        (["cpcs"], "Unknown method 'cpcs'"),
        (["ccps", "--models", "gpt5"], "--models: gpt5 is not in this paper"),
        (["ccps", "--json"], "--json: expected --dry-run as well"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_run(words: list[str], sentence: str) -> None:
    result = called(*words)
    assert isinstance(result.exception, UserError)
    assert sentence in str(result.exception)


def test_an_option_that_bench_run_does_not_know_is_refused() -> None:
    result = called("ccps", "--dry-run", "--devise", "cpu")
    assert result.exit_code == 2
    assert "No such option: --devise" in result.output


def test_a_machine_without_an_accelerator_is_told_the_hours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("subprocess.Popen", lambda *_: pytest.fail("it was run"))
    result = called("ccps", "--out", str(tmp_path))
    assert isinstance(result.exception, UserError)
    assert "116 hours on one H100, computed; this machine has no accelerator" in str(result.exception)
    assert "--device cpu" in str(result.exception)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [("seeds = [0, 1]", "seeds"), ('preset = "demo"', "preset"), ("hours = 0.25", "hours")],
)
def test_a_grid_that_is_not_whole_is_refused(paper: list[str], tmp_path: Path, wrong: str, sentence: str) -> None:
    (tmp_path / "grid.toml").write_text(GRID.replace(wrong, ""), encoding="utf-8")
    result = called(*paper, "--dry-run")
    assert isinstance(result.exception, UserError)
    assert "is not as it must be" in str(result.exception)
    assert sentence in str(result.exception)


def test_the_terminal_shows_the_costs_and_the_commands(paper: list[str]) -> None:
    out = called(*paper, "--dry-run", "--judge", "match").output
    assert "one abacus, computed: 0.5 in all" in out
    assert "at the prices of" not in out
    assert "0 of 1" in out
    assert out.count("\n  bench run --method flat --model tiny --task isles --preset demo --seed ") == 2


@pytest.mark.slow
def test_runs_that_are_there_are_not_run_again(paper: list[str], tmp_path: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "CONFBENCH_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bench.cli", "reproduce", *paper, "--device", "cpu", "--judge", "match"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)

    first = run()
    assert first.returncode == 0, first.stderr
    assert "[2 of 2] bench run --method flat" in first.stdout
    for path in (tmp_path / "results").rglob("*--s1.json"):
        path.unlink()  # as if it had been stopped between the two
    (left,) = plan(*paper, "--judge", "match")["commands"]
    assert "--seed 1" in left
    again = run()
    assert "[1 of 1]" in again.stdout
    assert "1 were there before" in again.stdout
    assert plan(*paper, "--judge", "match")["commands"] == []
    assert "Nothing is left to run" in called(*paper, "--dry-run", "--judge", "match").output


def test_results_of_another_judge_preset_or_setting_do_not_count(
    paper: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registry.methods([tmp_path / "flat.py"])
    task = registry.tasks([tmp_path / "flat.py"]).get("isles")
    work = PaperRuns(
        grid=read_grid("flat", known), methods={"flat": known.get("flat")()}, tasks={"isles": task},
        models=("tiny",), judge="openai", out=tmp_path,
    )  # fmt: skip
    from types import SimpleNamespace as Row

    row = {"method": "flat", "task": "isles", "model": "tiny", "seed": 0, "preset": "demo", "status": "ok"}
    row |= {"deviations": {}, "judge": None, "tuning": None}

    def there(**other: object) -> int:
        monkeypatch.setattr(reproduction, "read_all", lambda _: [Row(**row | other)])
        return replace(work).runs[0].there

    assert (work.models[0], work.grid.seeds[0], there()) == ("tiny", 0, 1)
    others = ({"preset": "fixed"}, {"deviations": {"flat.a": 1}}, {"status": "failed"}, {"seed": 1}, {"model": "x"},
              {"task": "atlas-oe"}, {"tuning": {"n": 4}})  # fmt: skip
    assert [there(**other) for other in others] == [0] * len(others)
