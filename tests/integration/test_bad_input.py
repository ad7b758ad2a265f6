"""Bad input gets one clear sentence and an exit code: no traceback, no half-written result, no other method harmed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from bench.model.folder import ModelFolder
from tests.fixtures import models

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]


def sentence(result: Completed) -> str:
    """The one sentence on stderr, after the lines of the plan."""
    assert "Traceback" not in result.stderr + result.stdout
    working = ("Plan: ", "  ", "prompts ", "read ")  # stages that take long are said, on a busy machine also short ones
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith(working)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("bench: ")
    return lines[0].removeprefix("bench: ")


@pytest.fixture
def refused(bench: Command, tmp_path: Path) -> Callable[..., str]:
    """Run, expect exit code 2 and nothing written; returns the sentence."""

    def refuse(*arguments: object, env: Mapping[str, str] | None = None) -> str:
        out, cache = tmp_path / "out", tmp_path / "cache"
        result = bench("run", *arguments, "--out", out, env={"CONFBENCH_CACHE": str(cache), **(env or {})})
        said = sentence(result)
        assert result.returncode == 2, said
        assert result.stdout == ""
        assert not out.exists()
        left = {path.name for path in cache.rglob("*") if path.suffix != ".log"}
        assert left <= {".writable", "logs", "claims"}
        return said

    return refuse


# --- names and options ------------------------------------------------------------------------------------------------

PTRUE = ("--method", "ptrue", "--model", "tiny")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "ptreu", "--model", "tiny"), ["Unknown method 'ptreu'", "Did you mean 'ptrue'?", "bench list"]),
        ((*PTRUE, "--limit", "0"), ["--limit", "at least 1", "got 0"]),
        ((*PTRUE, "--set", "protocol.shot=2"), ["no field 'shot'", "Did you mean 'shots'?"]),
        ((*PTRUE, "--set", "protocol.letters=ab"), ["a letter for each of the", "--set protocol.letters"]),
        ((*PTRUE, "--dtype", "float99"), ["Unknown dtype 'float99'", "float32"]),
        ((*PTRUE, "--device", "abacus"), ["--device abacus", "cuda, mps, cpu"]),
        ((*PTRUE, "--device", "cuda:99"), ["--device cuda:99", "this machine has"]),
        ((*PTRUE, "--devices", "0,0"), ["--devices 0,0", "each card once"]),
        ((*PTRUE, "--devices", "0,1", "--workers", "2"), ["--devices", "neither --workers nor --engine ray"]),
    ],
    ids=lambda value: " ".join(value[2:] or value) if isinstance(value, tuple) else "",
)
def test_unknown_names_and_wrong_values(
    refused: Callable[..., str], arguments: tuple[str, ...], words: list[str]
) -> None:
    said = refused(*arguments)
    for word in words:
        assert word in said


def test_a_table_of_colours_that_cant_be_read_is_said_before_any_work(bench: Command, tmp_path: Path) -> None:
    (tmp_path / "style.toml").write_text("colour =", encoding="utf-8")
    result = bench("run", *PTRUE, "--limit", 2, "--out", tmp_path)
    assert result.returncode == 2
    assert "style.toml" in result.stderr
    assert "Plan" not in result.stderr


def test_an_unknown_option_names_the_one_that_was_meant(bench: Command) -> None:
    result = bench("run", "--metod", "ptrue", "--model", "tiny")
    assert result.returncode == 2
    assert "--metod" in result.stderr
    assert "--method" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["run"], ["run", "--method", "ptrue"], ["frobnicate"], ["list"], ["show"]])
def test_a_command_line_that_lacks_something_is_a_user_error(bench: Command, command: list[str]) -> None:
    result = bench(*command)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["list", "methds"], ["expected one of methods, models, tasks", "'methds'"]),
        (["show", "ccsp"], ["Nothing is called 'ccsp'", "ccps"]),
        (["show", "atlas-choice", "--example", "999999"], ["--example 999999", "test questions 0 to"]),
        (["show", "atlas-choice", "--example", "-1"], ["--example -1"]),
        (["show", "atlas-chioce", "--example", "0"], ["Unknown task", "Did you mean 'atlas-choice'?"]),
        (["table", "--results", "nowhere"], ["results folder 'nowhere' does not exist"]),
        (["check", "nothing.py"], ["nothing.py"]),
        (["check", "ptreu"], ["ptreu"]),
    ],
)
def test_the_other_commands_say_what_they_expected(bench: Command, command: list[str], words: list[str]) -> None:
    result = bench(*command)
    assert result.returncode == 2
    said = sentence(result)
    for word in words:
        assert word in said


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "model"))


@pytest.mark.parametrize(("file", "word"), [("tokenizer.json", "found none"), ("model.safetensors", "can't be loaded")])
def test_a_model_folder_that_is_not_whole(refused: Callable[..., str], model: Path, file: str, word: str) -> None:
    if word == "found none":
        (model / file).unlink()
    else:
        os.truncate(model / file, 50_000)
    said = refused("--method", "ptrue", "--model", model, "--task", "atlas-choice", "--limit", 8)
    assert "'model'" in said
    assert word in said


def test_a_model_without_chat_template_is_noted_on_screen_and_in_the_result(
    bench: Command, model: Path, tmp_path: Path
) -> None:
    (model / "chat_template.jinja").unlink()
    result = bench(
        "run", "--method", "ptrue", "--model", model, "--task", "atlas-choice", "--limit", 4, "--set",
        "protocol.shots=0", "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("this model has no chat template") == 2  # before the work, and below the table
    (note,) = _row(tmp_path / "out", "ptrue")["notes"]
    assert note.startswith("this model has no chat template: it was asked with a plain one")


def test_without_the_hub_a_model_and_a_task_name_the_way_out(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries read their environment once, so it is set where they keep it."""
    import datasets
    from huggingface_hub import constants

    for keeps in (constants, datasets.config):
        monkeypatch.setattr(keeps, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    arguments = ("--method", "ptrue", "--task", "mmlu-choice", "--model")
    task = refused(*arguments, "tiny")
    model = refused(*arguments, "llama8b", "--data-dir", _mmlu(tmp_path / "data"))
    for said, words in ((task, ["cais/mmlu", "--data-dir"]), (model, ["meta-llama", "--model FOLDER", "tiny"])):
        for word in words:
            assert word in said


# --- data -------------------------------------------------------------------------------------------------------------


def _rows(n: int = 12) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"question": "Which?", "subject": "anatomy", "choices": ["1", "2", "3", "4"], "answer": 1}
    return [{**row, "question": f"Which of {i}?"} for i in range(n)]


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


def _mmlu(folder: Path) -> Path:
    for split in ("test", "dev"):
        _write(_rows(), folder / "mmlu" / f"{split}.parquet")
    return folder


def test_whole_data_pass(bench: Command, small_model: Path, tmp_path: Path) -> None:
    result = bench(
        "run", "--method", "ptrue", "--model", small_model, "--task", "mmlu-choice", "--data-dir",
        _mmlu(tmp_path / "data"), "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_a_row_that_is_not_as_expected(refused: Callable[..., str], tmp_path: Path) -> None:
    data = _mmlu(tmp_path / "data")
    rows = _rows()
    _write([*rows[:7], rows[7] | {"answer": 4}, *rows[8:]], data / "mmlu" / "test.parquet")
    said = refused(*PTRUE, "--task", "mmlu-choice", "--data-dir", data)
    for word in ("mmlu/test.parquet row 7", "'answer'", "0 to 3", "got int 4"):
        assert word in said


def test_a_file_that_is_cut_short(refused: Callable[..., str], tmp_path: Path) -> None:
    path = _mmlu(tmp_path / "data") / "mmlu" / "dev.parquet"
    os.truncate(path, path.stat().st_size // 2)
    said = refused(*PTRUE, "--task", "mmlu-choice", "--data-dir", tmp_path / "data")
    assert "mmlu/dev.parquet" in said
    assert "whole Parquet file" in said
    assert str(tmp_path) not in said or "--data-dir" in said


def plugin(folder: Path, source: str, name: str = "plugged") -> Path:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return path


TASK = """
from bench.api import Format, PromptStyle, Question, Task, TaskCard, task

@task("twice")
class Twice(Task):
    "Says one id twice."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, splits={"test": "test"}, sizes={"test": 2}, options=(2, 2), why="none")
    style = PromptStyle(header="", footer="", context="{text}\\n{options}")

    def questions(self, split):
        yield Question("twice/0", "s", "Which?", ("1", "2"), 0)
        yield Question("twice/0", "s", "Which else?", ("1", "2"), 0)
"""


def test_two_rows_with_one_id(refused: Callable[..., str], tmp_path: Path) -> None:
    said = refused(*PTRUE, "--plugin", plugin(tmp_path, TASK), "--task", "twice")
    assert "twice/test" in said
    assert "two questions 'twice/0'" in said


@pytest.mark.parametrize("member", ["__init__", "questions", "pools", "style_of", "origins", "provenance"])
def test_a_task_that_raises_is_one_sentence_before_any_work(
    refused: Callable[..., str], tmp_path: Path, member: str
) -> None:
    raising = f"    def {member}(self, *_):\n        raise KeyError('gone')\n"
    source = TASK.replace('"twice/0", "s", "Which else', '"twice/1", "s", "Which else') + raising
    said = refused(*PTRUE, "--plugin", plugin(tmp_path, source), "--task", "twice")
    assert said.startswith("task 'twice'")
    assert "KeyError: 'gone'" in said


# --- contexts and letters ---------------------------------------------------------------------------------------------


def _limit_context(model: Path, tokens: int) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": tokens}), encoding="utf-8")


def _row(out: Path, method: str) -> dict[str, Any]:
    (path,) = out.rglob(f"{method}--*.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_exemplars_that_do_not_fit_are_dropped_and_counted(
    bench: Command, refused: Callable[..., str], model: Path, tmp_path: Path
) -> None:
    _limit_context(model, 100)
    said = refused("--method", "ptrue", "--model", model, "--task", "atlas-choice", "--limit", 16)
    assert "longer context" in said
    found = re.search(r"Question \S+ has (\d+) tokens without exemplars.* leaves room for (-?\d+)\.", said)
    assert found is not None
    question, room = map(int, found.groups())
    dropped = []
    for beyond in (4000, 150, 50):  # tokens beside a question, for exemplars
        _limit_context(model, question + 100 - room + beyond)
        result = bench(
            "run", "--method", "ptrue", "--model", model, "--task", "atlas-choice", "--limit", 16,
            "--out", tmp_path / f"{beyond}", env={"CONFBENCH_CACHE": str(tmp_path / f"cache{beyond}")},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        dropped.append(_row(tmp_path / f"{beyond}", "ptrue")["n_shots_dropped"])
    assert dropped[0] == 0
    assert 0 < dropped[1] < dropped[2] <= 16 * 5


@pytest.fixture
def split_letters(model: Path) -> Path:
    """A model whose tokenizer makes two tokens of every small letter, and one of each capital."""
    import string

    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    from tests.fixtures import models

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(c, "~" + c) for c in string.ascii_lowercase])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    shutil.rmtree(model)
    split = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    tokens = {"vocab_size": len(vocabulary), "bos_token_id": 0, "eos_token_id": 1}
    return models.save(model, models.llama(max_position_embeddings=16384, **tokens), split)


def test_letters_of_several_tokens_have_a_way_out(
    bench: Command, refused: Callable[..., str], split_letters: Path, tmp_path: Path
) -> None:
    arguments = (
        "--method", "ptrue", "--model", split_letters, "--task", "atlas-choice", "--limit", 8,
        "--set", "protocol.shots=0",
    )  # fmt: skip
    said = refused(*arguments)
    assert "option letter 'a' to be one token" in said
    way_out = said.partition("for example: ")[2].split()
    assert way_out[0] == "--set"
    environment = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    result = bench("run", *arguments, *way_out, "--out", tmp_path / "results", env=environment)
    assert result.returncode == 0, result.stderr
    row = _row(tmp_path / "results", "ptrue")
    assert row["status"] == "ok"
    assert row["deviations"]["protocol.letters"] == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folders_that_can_not_be_written(bench: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for option, out, cache in (("--out", "file/out", "cache"), ("CONFBENCH_CACHE", "out", "file/cache")):
        environment = {"CONFBENCH_CACHE": str(tmp_path / cache)}
        result = bench("run", *PTRUE, "--limit", 8, "--out", tmp_path / out, env=environment)
        said = sentence(result)
        assert result.returncode == 2
        assert "can't be written" in said
        assert option in said
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


# --- plugins ----------------------------------------------------------------------------------------------------------

METHOD = """
import numpy as np
from bench.api import ChoiceLogits, ConfidenceMethod, Needs, QueryLogits, method

@method("plugged")
class Plugged(ConfidenceMethod):
    "Does what a test says."
    reference = "none"
    needs = Needs(fit=frozenset({{QueryLogits()}}), predict=frozenset({{QueryLogits()}}))
    takes_one_class = True  # a random model names no letter: all its answers are wrong
{extra}
    def predict(self, batch):
        {predict}
"""
FIT = "    def fit(self, train, ctx):\n        raise ValueError('two\\nlines')\n"
LOAD = "    def fit(self, train, ctx):\n        self.handle_ = object()\n        return self\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_here\n", ["can't be imported", "no_such_module_here"]),
        ("def broken(:\n", ["can't be imported", "SyntaxError"]),
        ("raise SystemExit(0)\n", ["can't be imported"]),
        ("x = 1\n", ["registers nothing", "@method"]),
    ],
)
def test_a_plugin_file_that_can_not_be_used(
    refused: Callable[..., str], tmp_path: Path, source: str, words: list[str]
) -> None:
    said = refused(*PTRUE, "--plugin", plugin(tmp_path, source))
    for word in ["plugged.py", *words]:
        assert word in said


BREAKING = [
    ("", "return np.full(len(batch), np.nan)", ["expected numbers, got NaN"]),
    ("", "return np.full(len(batch), 1.5)", ["within [0, 1]", "1.5"]),
    ("", "return np.full(len(batch) + 1, 0.5)", ["expected shape (16,), got (17,)"]),
    ("", "return ['sure'] * len(batch)", ["expected real numbers, got <U4 (a list)"]),
    ("", "return batch[ChoiceLogits()].max(axis=1)", ["ChoiceLogits()", "not declared in needs"]),
    ("", "return batch.correct.astype(float)", ["batch.correct was read outside fit"]),
    ("", "batch[QueryLogits()][:] = 0", ["expected real numbers, got object (a NoneType)"]),
    ("", "return 1 / 0", ["ZeroDivisionError"]),
    ("", "raise SystemExit(0)", ["SystemExit"]),
    (FIT, "return np.zeros(len(batch))", ["ValueError: two lines"]),
    (LOAD, "return np.zeros(len(batch))", ["handle_", "object"]),
]
"""What the class has besides `predict`, the body of `predict`, and words of the reason.

More values that are no confidences are in `tests/unit/api/test_confidence.py`.
"""


@pytest.fixture(scope="module")
def broken(
    bench: Command, small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Completed, Path]:
    """One run of `ptrue` and of every method that breaks a rule, `plugged-0` and so on, and the folder it wrote to."""
    folder = tmp_path_factory.mktemp("breaking")
    sources = (METHOD.format(extra=extra, predict=predict) for extra, predict, _ in BREAKING)
    file = plugin(folder, "".join(s.replace('"plugged"', f'"plugged-{i}"') for i, s in enumerate(sources)))
    names = ",".join(["ptrue", *(f"plugged-{i}" for i in range(len(BREAKING)))])
    result = bench(
        "run", "--method", names, "--model", small_model, "--plugin", rivers, "--plugin", file, "--task", "rivers",
        "--limit", 16, "--scale-training", "--out", folder / "out", env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    return result, folder


def test_methods_that_break_a_rule_fail_and_the_others_do_not(broken: tuple[Completed, Path]) -> None:
    result, folder = broken
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert result.stdout.count("failed") >= len(BREAKING)
    assert _row(folder / "out", "ptrue")["status"] == "ok"
    written = [path.name for path in (folder / "out").rglob("*--s0--n16.parquet")]  # the questions lie there too
    assert written == ["ptrue--fixed--s0--n16.parquet"]
    assert not list((folder / "cache").glob("fits/**/manifest.json"))  # failures are never stored


@pytest.mark.parametrize("i", range(len(BREAKING)), ids=[predict for _, predict, _ in BREAKING])
def test_a_method_that_breaks_a_rule_says_which(broken: tuple[Completed, Path], i: int) -> None:
    row = _row(broken[1] / "out", f"plugged-{i}")
    assert (row["status"], row["metrics"]) == ("failed", {})
    for word in BREAKING[i][2]:
        assert word in row["reason"]
    assert "\n" not in row["reason"]


def test_a_method_that_skips_itself_is_no_failure(
    bench: Command, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    extra = "    def skip(self, facts):\n        return 'not on this model'\n"
    path = plugin(tmp_path, METHOD.format(extra=extra, predict="raise AssertionError"))
    result = bench(
        "run", "--method", "plugged,ptrue", "--model", small_model, "--plugin", path, "--plugin", rivers,
        "--task", "rivers", "--limit", 16, "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = _row(tmp_path / "out", "plugged")
    assert (row["status"], row["reason"]) == ("skipped", "not on this model")
    assert "not on this model" in result.stdout


def test_a_method_without_a_split_to_learn_on_is_skipped_and_the_others_go_on(
    bench: Command, small_model: Path, tmp_path: Path
) -> None:
    """LTS learns on validation; MMLU's dev questions come with neither a validation nor a train split."""
    result = bench(
        "run", "--method", "ptrue,lts", "--model", small_model, "--task", "mmlu-choice", "--train-on",
        "mmlu-choice:dev", "--data-dir", _mmlu(tmp_path / "data"), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert _row(tmp_path / "out", "ptrue")["status"] == "ok"
    row = _row(tmp_path / "out", "lts")
    assert row["status"] == "skipped"
    assert "validation" in row["reason"]
    assert "validation" in result.stdout  # the table says it too


def test_where_the_query_can_not_be_asked_only_the_methods_that_ask_it_are_skipped(
    bench: Command, split_letters: Path, tmp_path: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue,self-consistency", "--model", split_letters, "--task", "atlas-oe", "--limit", 8,
        "--set", "protocol.shots=0", "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = _row(tmp_path / "out", "ptrue")
    assert row["status"] == "skipped"
    assert "to be one token" in row["reason"]
    sampled = _row(tmp_path / "out", "self-consistency")
    assert sampled["status"] == "ok"
    assert 0.1 <= sampled["modal_share"] <= 1
    assert row["modal_share"] is None


# --- a device that is too small ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_adapters_that_have_no_room_are_refused_before_anything_is_read(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Qwen 32B in its true shape, without weights, on a card of 40 GB."""
    settings = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))["qwen32b"]
    model = tmp_path / "qwen32b"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(settings | {"dtype": "bfloat16"}), encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"")
    for file in models.TOKENIZER_FILES:
        shutil.copy(models.TINY / file, model / file)
    card = SimpleNamespace(total_memory=40_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr("bench.model.language_model._device", lambda _requested: "cuda")
    monkeypatch.setattr(ModelFolder, "_check_size", lambda *_: None)  # the weights are not there
    said = refused("--method", "ptrue,ct", "--model", model, "--task", "atlas-choice", *more)
    assert re.search(r"qwen32b takes about \d\d GB with gradient checkpointing .* cuda has 40 GB: use a smaller", said)
    assert "leave out the methods that train one" in said
