"""What `bench list`, `bench show` and `bench params` say, with plugins that raise among the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import registry
from bench.api import UserError
from bench.cli.describe import example, list_records, show_record
from bench.cli.parameter_counts import parameter_records

PLUGINS = '''"""Raise wherever they are asked."""
from bench.api import ConfidenceMethod, Format, Needs, PromptStyle, Task, TaskCard, method, task

@method("sad")
class Sad(ConfidenceMethod):
    "Sad."
    reference = "none"
    needs = Needs()

    def predict(self, batch):
        raise KeyError("predict")

    def params(self):
        raise KeyError("params")

    def n_parameters(self, facts):
        raise KeyError("layers")

    @classmethod
    def trains(cls):
        raise SystemExit("trains")


@task("sad-task")
class SadTask(Task):
    "Sad."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, splits={"test": "test"}, sizes={"test": 2}, options=(2, 2), why="none")
    style = PromptStyle(header="", footer="", context="{text}{options}")

    def questions(self, split):
        raise KeyError("questions")

    def origins(self, split):
        raise KeyError("origins")
'''


@pytest.fixture
def plugins(tmp_path: Path) -> tuple[Path]:
    path = tmp_path / "sad.py"
    path.write_text(PLUGINS, encoding="utf-8")
    return (path,)


def test_presets_show_what_they_do_not_reproduce() -> None:
    assert any("hinge" in line for line in show_record("ccps")["not reproduced"] if line.startswith("paper: "))
    assert any("begin token" in line for line in show_record("protocol")["not reproduced"])
    known = registry.methods()
    silent = [name for name in known.names() if known.get(name).presets and not show_record(name)["not reproduced"]]
    assert silent == []


@pytest.mark.parametrize(
    ("kind", "name", "reason"), [("methods", "sad", "SystemExit: trains"), ("tasks", "sad-task", "KeyError: 'origins'")]
)
def test_plugin_that_raises_is_listed_as_broken(plugins: tuple[Path], kind: str, name: str, reason: str) -> None:
    broken = {line["name"]: line["broken"] for line in list_records(kind, plugins) if "broken" in line}
    assert list(broken) == [name]
    assert reason in broken[name]


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda plugins: show_record("sad", plugins), "method 'sad': SystemExit: trains"),
        (lambda plugins: show_record("sad-task", plugins), "task 'sad-task': KeyError: 'origins'"),
        (lambda plugins: example("sad-task", 0, None, plugins), "task 'sad-task': KeyError: 'questions'"),
        (lambda plugins: parameter_records(["llama8b"], plugins), "method 'sad', n_parameters: KeyError: 'layers'"),
    ],
)
def test_plugin_that_raises_where_it_is_asked_is_named(plugins, ask, reason: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=reason):
        ask(plugins)


@pytest.mark.parametrize(
    ("name", "written_out"),
    [
        ("ptrue", "P(True)"), ("pik", "P(IK)"), ("lts", "Logit temperature scaling (LTS)"),
        ("it", "Instruction tuning (IT)"), ("ct", "Calibration tuning (CT)"),
        ("litcab", "LitCab, lightweight calibration"),
        ("saplma-m", "Statement Accuracy Prediction based on Language Model Activations (SAPLMA)"),
        ("ccps", "Calibrating LLM Confidence by Probing Perturbed Representation Stability (CCPS)"),
    ],
)  # fmt: skip
def test_methods_of_papers_are_written_out(name: str, written_out: str) -> None:
    assert show_record(name)["what"].startswith(written_out)
    assert show_record(name.upper())["name"] == name


def test_method_without_reference_is_unpublished(tmp_path: Path) -> None:
    path = tmp_path / "sad.py"
    path.write_text(
        PLUGINS.replace('    reference = "none"\n', "").replace("raise SystemExit", "return not"), encoding="utf-8"
    )
    (line,) = [line for line in list_records("methods", (path,)) if line["name"] == "sad"]
    assert line["reference"] == "unpublished"


def test_question_file_is_shown_with_its_prompts(tmp_path: Path) -> None:
    path = tmp_path / "bees.jsonl"
    rows = [f'{{"question": "What is {i}?", "choices": ["a bee", "a wasp"], "answer": "b"}}' for i in range(4)]
    path.write_text("\n".join(rows), encoding="utf-8")
    assert show_record(None, file=path)["rows from"] == "bees.jsonl"
    prompt = example(None, 3, None, file=path)
    assert "What is 3?" in prompt["user"]
    assert prompt["right answer"] == "b"
    with pytest.raises(UserError, match=r"--example 4: task 'bees-\w{6}' has test questions 0 to 3"):
        example(None, 4, None, file=path)
