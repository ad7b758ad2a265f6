"""Bad input gets one clear sentence and exit code 2: no traceback, no half-written result, no other method harmed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import string
import tomllib
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pytest
import torch
from huggingface_hub import constants
from pyarrow import parquet
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from bench.model.folder import ModelFolder
from tests.fixtures import models
from tests.integration.conftest import FIXTURES
from tests.kit.place import Place

PTRUE = "run --method ptrue --model tiny"
CCPS = "analyze ccps features"
SHORES = f"--model {{small}} --plugin {FIXTURES / 'shores.py'}"
LABELS = f"analyze labels {SHORES} --task shores-choice"
TRANSFER = f"analyze transfer {SHORES}"
BOTH = "--on shores-choice,shores-oe"

# --- names and options ------------------------------------------------------------------------------------------------

REFUSED = [
    (f"{PTRUE} --dtype float99", "Unknown dtype 'float99'"),
    (f"{PTRUE} --device abacus", "--device abacus: expected one of cuda, mps, cpu"),
    (f"{PTRUE} --device cuda:99", "--device cuda:99"),
    (f"{PTRUE} --devices 0,1 --workers 2", "neither --workers nor --engine ray"),
    (f"{PTRUE} --engine spark", "--engine spark: expected local or ray."),
    (f"{PTRUE} --workers 0", "--workers: expected at least 1, got 0."),
    (f"{PTRUE} --address auto", "--address: expected --engine ray as well"),
    (f"{PTRUE} --judge openai", "expected a key in the environment variable OPENAI_API_KEY, found none"),
    ("list methds", "expected one of methods, models, tasks"),
    ("show ccsp", "Nothing is called 'ccsp'. Did you mean 'ccps'?"),
    ("show CCSP", "Nothing is called 'CCSP'. Did you mean 'ccps'?"),
    ("show", "bench show: expected a name (see: bench list) or --task-file FILE"),
    ("show tiny --task-file a.jsonl", "and one of them only"),
    ("show atlas-choice --example 999999", "--example 999999"),
    ("show atlas-choice --example -1", "--example -1"),
    ("table --results nowhere", "results folder 'nowhere' does not exist"),
    ("check nothing.py", "nothing.py"),
    ("check ptreu", "ptreu"),
    ("analyze ptrue", "ptrue has no analyses; methods that have some: ccps"),
    ("analyze cpps", "Unknown method 'cpps'. Did you mean 'ccps'?"),
    ("analyze ccps feature", "no analysis 'feature'. Did you mean 'features'? It has: features, leave-one-out, shap"),
    (CCPS, "--model: expected the model of the run"),
    (f"{CCPS} --model tiny --seed 0,1", "expected at least 5 different seeds, got 2"),
    (f"{CCPS} --model tiny --seed 1,1,1,1,1", "at least 5 different seeds, got one"),
    (f"{CCPS} --model tiny --seed a,b,c,d,e", "expected whole numbers from 0, got a, b"),
    (f"{LABELS} --method placid,ptrue --labels 1", "--labels: expected whole numbers from 10 on, or all, got '1'"),
    (f"{LABELS} --method placid,ptrue --labels 20,-5", "got '-5'"),
    (f"{LABELS} --method placid,ptrue --labels ,", "--labels: expected numbers of labels, got none"),
    (f"{LABELS} --method placid,ptrue --seed x", "--seed: expected whole numbers from 0, got x"),
    (f"{LABELS} --method ptrue", "expected at least one method that learns"),
    (f"{LABELS} --method it", "left out: it"),
    (f"{LABELS} --method plcid", "Did you mean 'placid'?"),
    (
        f"{LABELS} --method placid,ptrue",
        "bench run --method placid,ptrue --model {small} --task shores-choice --plugin",
    ),
    (f"{TRANSFER} --method rote --on shores-choice", "at least two tasks with a train split"),
    (f"{TRANSFER} --method rote --on lagoons", "no train rows"),
    (f"{TRANSFER} --method ptrue {BOTH}", "at least one method that learns"),
    (f"{TRANSFER} --method rote --on shores-chioce,shores-oe", "shores-chioce"),
    (f"{TRANSFER} --method rote {BOTH} --size-matched", "expected --leave-subject-out as well"),
    (f"{TRANSFER} --method rote {BOTH} --home lagoons=shores-oe", "'lagoons' is no test"),
    (f"{TRANSFER} --method rote {BOTH} --home shores-oe=shores-e", "'shores-e' is no corpus"),
    (f"{TRANSFER} --method rote {BOTH}{' --home shores-oe=shores-choice' * 2}", "each test once, got shores-oe again"),
    ("reproduce ptrue", "No grid is known of the paper of ptrue. Methods with one: ccps."),
    ("reproduce cpcs", "Unknown method 'cpcs'"),
    ("reproduce ccps --models gpt5", "--models: gpt5 is not in this paper"),
    ("reproduce ccps --json", "--json: expected --dry-run as well"),
]
"""Command -> what its sentence has."""


@pytest.mark.parametrize(("command", "said"), REFUSED)
def test_bad_requests_are_one_sentence(tmp_path: Path, small_model: Path, command: str, said: str) -> None:
    told = Place(tmp_path, here=True).refused(
        *shlex.split(command.format(small=small_model)), env={"OPENAI_API_KEY": ""}
    )
    assert said.format(small=small_model) in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --metod ptrue --model tiny", "--method"),
        ("run", "Error: "),
        ("run --method ptrue", "Error: "),
        ("frobnicate", "Error: "),
        ("reproduce ccps --dry-run --devise cpu", "No such option: --devise"),
        ("analyze transfer --model tiny --method pik --on a,b --seed x", "whole numbers separated by commas, got 'x'"),
    ],
)
def test_wrong_command_lines_are_user_errors(place: Place, words: str, said: str) -> None:
    ended = place.bench(*words.split())
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert said in ended.stderr.splitlines()[-1]


def test_colours_that_are_broken_are_said_first(place: Place) -> None:
    place.write("out/style.toml", "colour =")
    ended = place.done(*PTRUE.split(), "--limit", 2, code=2)
    assert "style.toml" in ended.stderr
    assert "Plan" not in ended.stderr


def test_folders_that_can_not_be_written_are_told(place: Place) -> None:
    place.write("file", "x")
    for option, out, cache in (("--out", "file/out", "cache"), ("CONFBENCH_CACHE", "out", "file/cache")):
        ended = place.run(
            *PTRUE.split()[1:], "--limit", 8, out=out, code=2, env={"CONFBENCH_CACHE": str(place / cache)}
        )
        (said,) = (line for line in ended.stderr.splitlines() if line.startswith("bench: "))
        assert "can't be written" in said
        assert option in said
    assert not (place / "out").exists()
    assert (place / "file").read_text(encoding="utf-8") == "x"


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "model"))


def atlas(model: Path, *more: object, methods: str = "ptrue") -> tuple[object, ...]:
    return ("--method", methods, "--model", model, "--task", "atlas-choice", *more)


def test_model_without_chat_template_is_noted(place: Place, model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    ended = place.run(*atlas(model, "--limit", 4, "--set", "protocol.shots=0"))
    assert ended.stderr.count("this model has no chat template") == 2  # before the work, and below the table
    (note,) = place.row()["notes"]
    assert note.startswith("this model has no chat template: it was asked with a plain one")


def test_hub_that_is_away_has_ways_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries read their environment once, so it is set where they keep it."""
    monkeypatch.delenv("CONFBENCH_DATA", raising=False)  # else the whole of MMLU is there, and read
    for keeps in (constants, datasets.config):
        monkeypatch.setattr(keeps, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(place / "hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "datasets")
    asked = ("run", "--method", "ptrue", "--task", "mmlu-choice", "--model")
    task, model = place.refused(*asked, "tiny"), place.refused(*asked, "llama8b", "--data-dir", mmlu(place))
    for said, words in ((task, ["cais/mmlu", "--data-dir"]), (model, ["meta-llama", "--model FOLDER", "tiny"])):
        assert all(word in said for word in words)


@pytest.mark.parametrize("more", [(), pytest.param(("--dry-run",), marks=pytest.mark.slow)])
def test_adapters_without_room_are_refused_before_any_reading(
    place: Place, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Qwen 32B in its true shape, without weights, on a card of 40 GB."""
    settings = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))["qwen32b"]
    model = place.write("qwen32b/config.json", json.dumps(settings | {"dtype": "bfloat16"})).parent
    place.write("qwen32b/model.safetensors", "")
    for file in models.TOKENIZER_FILES:
        shutil.copy(models.TINY / file, model / file)
    card = SimpleNamespace(total_memory=40_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr("bench.model.language_model._device", lambda _requested: "cuda")
    monkeypatch.setattr(ModelFolder, "_check_size", lambda *_: None)  # the weights are not there
    said = place.refused("run", *atlas(model, *more, methods="ptrue,ct"))
    assert re.search(r"qwen32b takes about \d\d GB with gradient checkpointing .* cuda has 40 GB: use a smaller", said)
    assert "leave out the methods that train one" in said


# --- contexts and letters ---------------------------------------------------------------------------------------------


def limit_context(model: Path, tokens: int) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": tokens}), encoding="utf-8")


def test_exemplars_that_do_not_fit_are_counted(place: Place, model: Path) -> None:
    limit_context(model, 100)
    said = place.refused("run", *atlas(model, "--limit", 16))
    assert "longer context" in said
    found = re.search(r"Question \S+ has (\d+) tokens without exemplars.* leaves room for (-?\d+)\.", said)
    assert found is not None
    question, room = map(int, found.groups())
    dropped = []
    for beyond in (4000, 150, 50):  # tokens beside a question, for exemplars
        limit_context(model, question + 100 - room + beyond)
        own = Place(place / f"{beyond}")
        own.run(*atlas(model, "--limit", 16))
        dropped.append(own.row()["n_shots_dropped"])
    assert dropped[0] == 0
    assert 0 < dropped[1] < dropped[2] <= 16 * 5


@pytest.fixture
def split_letters(tmp_path: Path) -> Path:
    """A model whose tokenizer makes two tokens of every small letter, and one of each capital."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(c, "~" + c) for c in string.ascii_lowercase])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    split = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    tokens = {"vocab_size": len(vocabulary), "bos_token_id": 0, "eos_token_id": 1}
    return models.save(tmp_path / "model", models.llama(max_position_embeddings=16384, **tokens), split)


def test_letters_of_several_tokens_have_a_way_out(place: Place, split_letters: Path) -> None:
    asked = atlas(split_letters, "--limit", 8, "--set", "protocol.shots=0")
    said = place.refused("run", *asked)
    assert "option letter 'a' to be one token" in said
    way_out = said.partition("for example: ")[2].split()
    assert way_out[0] == "--set"
    place.run(*asked, *way_out)
    assert place.row()["status"] == "ok"
    assert place.row()["deviations"]["protocol.letters"] == string.ascii_uppercase


def test_methods_whose_query_cannot_be_asked_are_skipped(place: Place, split_letters: Path) -> None:
    methods = "ptrue,self-consistency"
    asked = ("--method", methods, "--model", split_letters, "--task", "atlas-oe", "--limit", 8)
    place.run(*asked, "--set", "protocol.shots=0")
    row, sampled = (place.rows()[name] for name in methods.split(","))
    assert (row["status"], sampled["status"]) == ("skipped", "ok")
    assert "to be one token" in row["reason"]
    assert 0.1 <= sampled["modal_share"] <= 1
    assert row["modal_share"] is None


# --- data -------------------------------------------------------------------------------------------------------------


def mmlu(place: Place) -> Path:
    """A data folder with MMLU."""
    rows: list[dict[str, Any]] = [
        {"question": f"Which of {i}?", "subject": "anatomy", "choices": ["1", "2", "3", "4"],
         "answer": 1} for i in range(12)
    ]  # fmt: skip
    (place / "data" / "mmlu").mkdir(parents=True, exist_ok=True)
    for split in ("test", "dev"):
        parquet.write_table(pa.Table.from_pylist(rows), place / "data" / "mmlu" / f"{split}.parquet")
    return place / "data"


def test_plugin_that_can_not_be_imported_is_named(place: Place) -> None:
    said = place.refused(*PTRUE.split(), "--plugin", place.write("plugged.py", "import no_such_module_here\n"))
    assert all(word in said for word in ("plugged.py", "can't be imported", "no_such_module_here"))


TASK = """
from bench.api import Format, PromptStyle, Question, Task, TaskCard, task

@task("twice")
class Twice(Task):
    "Two questions."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, splits={"test": "test"}, sizes={"test": 2}, options=(2, 2), why="none")
    style = PromptStyle(header="", footer="", context="{text}\\n{options}")

    def questions(self, split):
        yield Question("twice/0", "s", "Which?", ("1", "2"), 0)
        yield Question("twice/1", "s", "Which else?", ("1", "2"), 0)
"""


@pytest.mark.parametrize("member", ["__init__", "questions", "pools", "style_of", "origins", "provenance"])
def test_task_that_raises_is_told_before_any_work(place: Place, member: str) -> None:
    raising = f"    def {member}(self, *_):\n        raise KeyError('gone')\n"
    said = place.refused(*PTRUE.split(), "--plugin", place.write("plugged.py", TASK + raising), "--task", "twice")
    assert said.startswith("task 'twice'")
    assert "KeyError: 'gone'" in said
