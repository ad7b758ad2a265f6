"""Training an adapter in a child process: the mathematics of plain passes, whatever the processes and interruptions."""

from __future__ import annotations

import errno
import functools
import importlib.util
import io
import itertools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from bench.api import AdapterRef, ContractError, QueryLogits, Ragged, UserError, Validation
from bench.api.early_stopping import validation_loss
from bench.model import folder as folders_of_models
from bench.model import session, training_memory
from bench.model.adapter import SETTINGS as SETTINGS_FILE
from bench.model.adapter import WEIGHTS, apply_adapter, fingerprint
from bench.model.continuation_specs import ModelInput
from bench.model.extractor import Extractor
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.linear_layers import of_config
from bench.model.specs import ModelSpec
from bench.prompts.prompt_settings import PromptSettings
from bench.registry import run_file
from bench.signals.definition import pass_definitions
from bench.store import disk_cache
from bench.store.disk_cache import Store, digest_file, key_of
from bench.store.locks import file_lock
from bench.store.sources import source_digest
from bench.training import child as children
from bench.training import loop
from bench.training.job import (
    ADAPTER,
    CHECKPOINTS,
    CONFIDENCES,
    CONFIG,
    EXAMPLES,
    REPORT,
    VALIDATION,
    Job,
    Recipe,
    select_rows,
    write_examples,
)
from bench.training.model import LossProbe, frozen_requests, group_sequences
from bench.training.optimisers import ProcessGroup, TorchOptimiser
from bench.training.trainer import AdapterTrainer, training_cost, training_report
from methods._shared import lora
from tests.fixtures import models

VOCABULARY = 80
NO, YES = 10, 11
N, BATCH = 24, 8
SETTINGS: dict[str, Any] = {
    "rank": 4, "alpha": 16, "dropout": 0.0, "target_modules": "", "steps": 6, "batch_size": BATCH,
    "learning_rate": 1e-2, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.999, "clip": 0.0, "seed": 3,
    "deepspeed": False, "divergence": "jsd", "divergence_weight": 1.0,
}  # fmt: skip
CT = "methods._shared.lora:ct_loss"
CONFIDENCE = "methods._shared.lora:verdict_confidence"


def save_model(folder: Path, config: Any, seed: int = 0) -> Path:
    return models.save(folder, config, models.words(VOCABULARY), seed)


def llama(**changes: Any) -> Any:
    shape = {
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    }  # fmt: skip
    return models.llama(vocab_size=VOCABULARY, **shape | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("llama"), llama())


def load(folder: Path, name: str = "llama") -> LanguageModel:
    return LanguageModel(ModelSpec(name, str(folder), local=True), LoadOptions(device="cpu"))


@pytest.fixture
def lm(folder: Path) -> LanguageModel:
    return load(folder)


def examples() -> dict[str, Any]:
    """Prompts of two subjects, which share beginnings; the right verdict follows from the answer's parity."""
    rng = np.random.default_rng(0)
    subjects = rng.integers(12, VOCABULARY, (2, 9))
    prompts = [[1, *subjects[i % 2], *rng.integers(12, VOCABULARY, 2 + i % 5)] for i in range(N)]
    answers = rng.integers(12, VOCABULARY, N)
    return {
        "query": Ragged.of([np.asarray([*p, a, 7, 8]) for p, a in zip(prompts, answers, strict=True)]),
        "correct": answers % 2 == 0,
        "prompt": Ragged.of([np.asarray(p) for p in prompts]),
        "gold": Ragged.of([rng.integers(12, VOCABULARY, 1 + i % 3) for i in range(N)]),
    }


def held_out(n: int = 11) -> Validation:
    """Other queries, with labels that follow from nothing."""
    rng = np.random.default_rng(1)
    queries = [np.asarray([1, *rng.integers(12, VOCABULARY, 6 + i % 4), 7, 8]) for i in range(n)]
    return Validation(CONFIDENCE, {"query": Ragged.of(queries), "correct": rng.random(n) < 0.5})


def learnable(n: int = 11) -> Validation:
    """Some of what is learned from, so that validation never ends the training."""
    given = examples()
    return Validation(CONFIDENCE, {"query": given["query"].take(np.arange(n)), "correct": given["correct"][:n]})


def each(*columns: str) -> Iterator[tuple[Any, ...]]:
    """Rows of these columns."""
    given = examples()
    return (tuple(given[name][i] for name in columns) for i in range(N))


def trainer(lm: LanguageModel, root: Path, **changes: Any) -> AdapterTrainer:
    return AdapterTrainer(lm, Store(root), "ct", (NO, YES), **changes)


@contextmanager
def here(config: Path, _processes: int, _devices: tuple[str, ...]) -> Iterator[Any]:
    """The child's work in this process, which has imported the libraries."""
    with io.StringIO() as out, redirect_stdout(out):
        loop.main(config)
        lines = out.getvalue().splitlines(keepends=True)
    yield SimpleNamespace(stdout=lines, wait=lambda: 0)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, AdapterRef]:
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "start_child", here)
        ref = trainer(load(folder), root)(loss=CT, examples=examples(), settings=SETTINGS)
    assert not list((root / "training").iterdir())  # the job's own folder is gone
    return root, ref


# --- one training -----------------------------------------------------------------------------------------------------


def test_adapter_is_pefts_own_and_names_no_path(trained: tuple[Path, AdapterRef], folder: Path) -> None:
    _, ref = trained
    wrapped = peft.PeftConfig.from_pretrained(str(ref.folder))
    assert wrapped.peft_type == peft.PeftType.LORA
    assert (wrapped.r, wrapped.lora_alpha, wrapped.bias) == (4, 16, "none")
    weights = load_file(ref.folder / "adapter_model.safetensors")
    adapted = [p for p in load(folder).facts.projections if p.part]
    assert sum(w.numel() for w in weights.values()) == 4 * sum(p.inputs + p.outputs for p in adapted)
    assert any(w.abs().max() > 0 for name, w in weights.items() if "lora_B" in name)
    assert str(folder) not in "".join(p.read_text() for p in ref.folder.glob("*.json"))


def test_same_job_is_trained_once(
    trained: tuple[Path, AdapterRef], lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ref = trained
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # whoever starts a child now fails
    again = trainer(lm, root)
    assert again(loss=CT, examples=examples(), settings=SETTINGS) == ref
    with pytest.raises(OSError, match="nowhere"):
        again(loss=CT, examples=examples(), settings={**SETTINGS, "seed": 4})
    different = examples()
    different["correct"] = ~different["correct"]
    with pytest.raises(OSError, match="nowhere"):
        again(loss=CT, examples=different, settings=SETTINGS)


def test_training_pads_nothing_and_reads_beginnings_once(trained: tuple[Path, AdapterRef]) -> None:
    _, ref = trained
    given, cost = examples(), training_cost(ref)
    recipe = Recipe.of(SETTINGS)

    def prefixes(sequences: list[list[int]]) -> int:
        return len({tuple(s[:n]) for s in sequences for n in range(1, len(s) + 1)})

    continued = [[*given["prompt"][i], *given["gold"][i][:-1]] for i in range(N)]
    steps = [loop.batch_rows(N, step, recipe) for step in range(6)]
    with_adapter = [prefixes([[*given["query"][i]] for i in rows] + [continued[i] for i in rows]) for rows in steps]
    assert cost.forward_tokens_floor == sum(with_adapter) + prefixes(continued)
    assert cost.forward_tokens == cost.padded_tokens == cost.forward_tokens_floor  # each step fits into one pass
    assert training_report(ref)["steps"] == 6


# --- against plain passes ---------------------------------------------------------------------------------------------


def write_job(
    lm: LanguageModel, folder: Path, settings: dict[str, Any], validation: Validation | None = None, **changes: Any
) -> Path:
    """A job as the parent writes it, for a child that the test starts itself."""
    folder.mkdir()
    given = examples()
    tested = validation or Validation("", {})
    job = trainer(lm, folder / "cache")._job(CT, given, settings, tested)
    write_examples(folder / EXAMPLES, given)
    write_examples(folder / VALIDATION, tested.examples)
    return replace(job, **changes).write(folder)


@functools.cache
def plain_losses(folder: Path, steps: int) -> list[float]:
    """The same training written out: padded batches, full logits, transformers, peft and torch alone."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(SETTINGS["seed"])
    config = peft.LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    with pytest.warns(FutureWarning):
        wrapped = peft.get_peft_model(model, config)
    optimiser = torch.optim.AdamW([p for p in wrapped.parameters() if p.requires_grad], lr=1.0, weight_decay=0.1)
    given, losses = examples(), []
    for step in range(steps):
        total = torch.zeros(())
        for i in loop.batch_rows(N, step, Recipe.of(SETTINGS)):
            query, prompt, gold = (torch.tensor(given[k][i])[None] for k in ("query", "prompt", "gold"))
            verdict = wrapped(query).logits[0, -1, [NO, YES]]
            total = total + torch.nn.functional.cross_entropy(verdict, torch.tensor(int(given["correct"][i])))
            whole = torch.cat([prompt, gold], dim=1)
            p = wrapped(whole).logits[0, prompt.shape[1] - 1 : -1].softmax(dim=-1)
            with torch.no_grad(), wrapped.disable_adapter():
                q = wrapped(whole).logits[0, prompt.shape[1] - 1 : -1].softmax(dim=-1)
            mean = (p + q) / 2
            total = total + 0.5 * (p * (p / mean).log() + q * (q / mean).log()).sum()
        optimiser.zero_grad()
        (total / BATCH).backward()
        for group in optimiser.param_groups:
            group["lr"] = SETTINGS["learning_rate"] * 0.5 * (1 + math.cos(math.pi * step / SETTINGS["steps"]))
        optimiser.step()
        losses.append(float(total.detach()) / BATCH)
    return losses


def logged(output: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]


@pytest.mark.parametrize(("packed", "budget"), [(True, 4096), (True, 20), (False, 4096)])
def test_losses_are_those_of_plain_passes(
    lm: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool, budget: int
) -> None:
    loop.main(write_job(lm, tmp_path / "job", SETTINGS, packed=packed, token_budget=budget))
    lines = logged(capsys.readouterr().out)
    expected = plain_losses(lm.folder, 6)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose([line["loss"] for line in lines], expected, rtol=2e-4)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[0]["lr"] == SETTINGS["learning_rate"]


def looking_loss(model: Any, given: Any, settings: Any) -> torch.Tensor:
    """A plugin's loss that looks into its logits: no numbers, no loss."""
    logits = model.logits(given["query"], np.ones(len(given["query"]), dtype=np.int64))
    assert logits.argmax(dim=-1).tolist() or settings
    return lora.ct_loss(model, given, settings)


def test_frozen_requests_take_no_numbers() -> None:
    given, vocabulary, devices = examples(), 1 << 40, []

    def prompt_settings(loss: Any) -> Any:
        def ask(questioner: LossProbe) -> None:
            devices.append(questioner.device)
            for rows in np.array_split(np.arange(N), 3):
                loss(questioner, select_rows(given, rows), SETTINGS)

        return ask

    found = frozen_requests(prompt_settings(lora.ct_loss), (NO, YES), vocabulary)  # 280 TB for each batch, if allocated
    by_hand = {(np.asarray([*p, *g[:-1]], dtype=np.int32).tobytes(), len(g)) for p, g in each("prompt", "gold")}
    assert found == sorted(by_hand)
    assert frozen_requests(prompt_settings(lora.it_loss), (NO, YES), vocabulary) == []
    assert frozen_requests(prompt_settings(looking_loss), (NO, YES), VOCABULARY) == found
    assert devices == ["meta", "meta", "meta", "cpu"]
    with pytest.raises(KeyError, match="no such"):
        frozen_requests(prompt_settings(lambda *_: {}["no such"]), (NO, YES), VOCABULARY)


def test_token_budget_is_part_of_the_key(lm: LanguageModel, tmp_path: Path) -> None:
    found = {}
    for budget in (None, 2048, 512):
        train, none = trainer(lm, tmp_path, token_budget=budget), Validation("", {})
        job = train._job(CT, examples(), SETTINGS, none)
        found[budget] = job.token_budget, train._fields(job, examples(), none)
    assert found[None] == found[2048]
    assert (found[None][0], found[512][0]) == (2048, 512)
    assert [name for name, value in found[512][1].items() if value != found[None][1][name]] == ["token_budget"]


def test_adapter_keys_hold_what_a_loss_imports(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    terms, path = tmp_path / "terms_of_a_loss.py", tmp_path / "loss_of_terms.py"
    terms.write_text("from methods._shared.lora import ct_loss, verdict_confidence\n")
    path.write_text("from terms_of_a_loss import ct_loss, verdict_confidence\n")
    module = run_file(path)
    tested = Validation(f"{module}:verdict_confidence", held_out().examples)

    def fields(loss: str, validation: Validation) -> dict[str, Any]:
        train = trainer(lm, tmp_path / "cache")
        return train._fields(train._job(loss, examples(), SETTINGS, validation), examples(), validation)

    before = fields(f"{module}:ct_loss", tested)
    with terms.open("a") as file:
        file.write("x = 1\n")
    after = fields(f"{module}:ct_loss", tested)
    assert {name for name, value in after.items() if value != before[name]} == {"loss", "confidence"}
    built_in = {"name": CT, "source": source_digest([Path(lora.__file__)])}  # as adapters have it that were trained
    assert fields(CT, Validation("", {}))["loss"] == built_in


def test_child_trains_the_commit_of_the_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main branch may move before it looks it up."""
    snapshot = tmp_path / "snapshots" / ("c" * 40)
    snapshot.parent.mkdir()
    snapshot.symlink_to(folder)
    monkeypatch.setattr(folders_of_models, "snapshot_download", lambda *_, **__: str(snapshot))
    lm = LanguageModel(ModelSpec("org/llama", "org/llama", local=False), LoadOptions(device="cpu"))
    job = Job.read(write_job(lm, tmp_path / "job", SETTINGS))
    assert (job.model["source"], job.model["revision"]) == ("org/llama", "c" * 40)


def test_checkpointing_is_chosen_if_it_alone_has_room(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm.model  # noqa: B018 - loaded on the CPU, which then is called a card
    lm.devices = ("cuda",)
    train, none = trainer(lm, tmp_path, processes=1, token_budget=2048), Validation("", {})
    card, found = SimpleNamespace(total_memory=0), []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    needed = {
        on: training_memory.training_footprint(lm.config, lm.dtype, 2048, rank=4, checkpointing=on)
        for on in (False, True)
    }

    def known(config: Any, dtype: Any, tokens: int, *, rank: int, named: str, checkpointing: bool) -> Any:
        assert (config, dtype, tokens, rank, named) == (lm.config, lm.dtype, 2048, 4, "")
        return needed[checkpointing]

    monkeypatch.setattr(training_memory, "training_footprint", known)  # each takes a while
    for on in (False, True):
        card.total_memory = needed[on].total + 1_500_000_000
        job = train._job(CT, examples(), SETTINGS, none)
        found.append((job.checkpointing, train._fields(job, examples(), none).get("checkpointing")))
    assert found == [(False, None), (True, True)]
    card.total_memory -= 1
    with pytest.raises(UserError, match=r"Training an adapter of llama takes .* cuda has 2 GB"):
        train(loss=CT, examples=examples(), settings=SETTINGS)
    assert not (tmp_path / "training").exists()


def test_dropout_is_reproducible_and_on_after_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lm = load(save_model(tmp_path / "model", llama(attention_dropout=0.5)))  # of which the base has none
    losses = []
    for name, dropout, validation in (("a", 0.5, None), ("b", 0.5, learnable()), ("c", 0.0, None)):
        loop.main(write_job(lm, tmp_path / name, {**SETTINGS, "dropout": dropout}, validation))
        losses.append([line["loss"] for line in logged(capsys.readouterr().out)])
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][0] == losses[2][0]  # B is 0 at first, so the adapter's dropout shows from the second step on


def test_checkpointing_changes_no_step(
    lm: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, "dropout": 0.5}
    again, losses, adapters = [], [], []
    plain = session.checkpoint

    def counted(*args: Any, **settings: Any) -> Any:
        again.append(1)
        return plain(*args, **settings)

    monkeypatch.setattr(session, "checkpoint", counted)
    for name, on in (("whole", False), ("less", True)):
        config = write_job(lm, tmp_path / name, settings, learnable(), checkpointing=on, token_budget=60)
        loop.main(config)
        losses.append([line["loss"] for line in logged(capsys.readouterr().out)])
        adapters.append(load_file(config.parent / ADAPTER / "adapter_model.safetensors"))
        assert bool(again) == on == json.loads((config.parent / ADAPTER / REPORT).read_text())["checkpointing"]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    for name, tensor in adapters[0].items():
        torch.testing.assert_close(tensor, adapters[1][name], atol=1e-6, rtol=1e-5)


def child(config: Path, processes: int = 1) -> subprocess.Popen[str]:
    torchrun = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command = [sys.executable, *([*torchrun, f"--nproc-per-node={processes}"] if processes > 1 else [])]
    environment = {**os.environ, "PYTHONPATH": str(Path(loop.__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, "-m", "bench.training", str(config)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True,
    )  # fmt: skip


def finished(config: Path, processes: int = 1) -> list[dict[str, float]]:
    process = child(config, processes)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return logged(output)


def killed_after(config: Path, step: int, processes: int = 1) -> None:
    """Start a child and end it the hard way once it has reported this step."""
    process = child(config, processes)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f'{{"step": {step},'):
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.stdout.close()
    assert process.wait(20) == -signal.SIGKILL


def same_end(config: Path, whole: Path) -> None:
    """Refuse two trainings that differ in a bit, or in their account but for the time that they took."""
    for name in ("adapter_model.safetensors", CONFIDENCES):
        assert (config.parent / ADAPTER / name).read_bytes() == (whole.parent / ADAPTER / name).read_bytes()
    reports = [json.loads((path.parent / ADAPTER / REPORT).read_text()) for path in (config, whole)]
    assert [report | {"seconds": 0} for report in reports] == [reports[0] | {"seconds": 0}] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("deepspeed", "processes"), [(False, 1), (True, 1), (True, 2)])
def test_killed_training_goes_on_to_the_same_end(
    lm: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], deepspeed: bool, processes: int
) -> None:
    settings = {**SETTINGS, "steps": 16, "dropout": 0.1, "deepspeed": deepspeed, "clip": 0.5}
    whole = write_job(lm, tmp_path / "whole", settings, learnable())
    if deepspeed:
        finished(whole, processes)
    else:
        loop.main(whole)  # in this process, which has imported the libraries
    config = write_job(lm, tmp_path / "job", settings, learnable(), checkpoint_every=3)
    killed_after(config, 7, processes)
    files = [path.name for path in config.parent.rglob("*") if path.is_file()]
    assert {Path(name).suffix for name in files} <= {".json", ".safetensors", ".lock"}
    if deepspeed:
        resumed = finished(config, processes)
    else:
        with file_lock(config.parent / "rank0.lock", None):  # as a process does, which waits for nobody here
            capsys.readouterr()
            loop.main(config)
        resumed = logged(capsys.readouterr().out)
    assert 4 <= resumed[0]["step"] <= 13  # from a checkpoint, not from the start
    same_end(config, whole)
    assert not (config.parent / CHECKPOINTS).exists()


@pytest.fixture(scope="module")
def interrupted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Configurations of a training that went through, and of the same with two checkpoints, ended after the second."""
    root = tmp_path_factory.mktemp("jobs")
    settings = {**SETTINGS, "steps": 8, "dropout": 0.1, "clip": 0.5}
    whole = write_job(load(folder), root / "whole", settings, learnable())
    loop.main(whole)
    config = write_job(load(folder), root / "job", settings, learnable(), checkpoint_every=3)

    class Ended(loop._Training):
        def _step(self, step: int) -> None:
            if step == 7:
                raise KeyboardInterrupt
            super()._step(step)

    with pytest.raises(KeyboardInterrupt):
        Ended(Job.read(config), config.parent, ProcessGroup("cpu", grouped=False)).run()
    return config, whole


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "of another step": lambda path: shutil.copyfile(path.parents[1] / "step-3" / path.name, path),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state.json", "flipped"),
        ("state.json", "deleted"),
        ("best.safetensors", "truncated"),
        ("optimiser.safetensors", "emptied"),
        ("optimiser.safetensors", "of another step"),
        ("manifest.json", "flipped"),
        ("manifest.json", "deleted"),
        ("manifest.json", "of another step"),
    ],
)
def test_damaged_checkpoint_is_never_used(
    interrupted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    config, whole = interrupted
    shutil.copytree(config.parent, tmp_path / "job")
    DAMAGES[damage](tmp_path / "job" / CHECKPOINTS / "step-6" / name)
    loop.main(tmp_path / "job" / CONFIG)
    lines = capsys.readouterr().out.splitlines()
    (note,) = [json.loads(line)["note"] for line in lines if line.startswith('{"note"')]
    assert note.startswith("checkpoint step-6 of a training was damaged (")
    assert logged("\n".join(lines))[0]["step"] == 4  # the checkpoint before it is whole
    same_end(tmp_path / "job" / CONFIG, whole)


def test_training_without_a_whole_checkpoint_begins_anew(
    interrupted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, whole = interrupted
    shutil.copytree(config.parent, tmp_path / "job")
    flipped(tmp_path / "job" / CHECKPOINTS / "step-6" / "state.json")
    shutil.rmtree(tmp_path / "job" / CHECKPOINTS / "step-3")
    loop.main(tmp_path / "job" / CONFIG)
    assert logged(capsys.readouterr().out)[0]["step"] == 1
    same_end(tmp_path / "job" / CONFIG, whole)

    other = write_job(load(Path(Job.read(config).model["source"])), tmp_path / "other", {**SETTINGS, "seed": 9})
    shutil.copytree(config.parent / CHECKPOINTS, other.parent / CHECKPOINTS)
    loop.main(other)
    out = capsys.readouterr().out
    assert out.count("was damaged (it is of another job or step)") == 2
    assert logged(out)[0]["step"] == 1


def test_training_goes_on_in_a_moved_cache(
    interrupted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, whole = interrupted
    shutil.copytree(config.parent, tmp_path / "job")
    job = Job.read(config)
    replace(job, load={**job.load, "cache": str(tmp_path)}).write(tmp_path / "job")
    loop.main(tmp_path / "job" / CONFIG)
    out = capsys.readouterr().out
    assert "damaged" not in out
    assert logged(out)[0]["step"] == 7
    same_end(tmp_path / "job" / CONFIG, whole)


def test_checkpoint_that_is_unreadable_for_now_stays(
    interrupted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = interrupted
    shutil.copytree(config.parent, tmp_path / "job")

    def unread(path: Path) -> str:
        if path.name == "state.json":
            raise OSError(errno.EIO, "Input/output error")
        return digest_file(path)

    monkeypatch.setattr(disk_cache, "digest_file", unread)
    with pytest.raises(UserError, match=r"can't be read: Input/output error\. It was not removed"):
        loop.main(tmp_path / "job" / CONFIG)
    assert (tmp_path / "job" / CHECKPOINTS / "step-6" / "state.json").is_file()


def test_training_keeps_the_step_validation_likes_best(
    lm: LanguageModel, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read again by transformers and peft alone, one sequence at a time and without dropout."""
    held = held_out()
    settings = {**SETTINGS, "steps": 64, "published_steps": 100, "dropout": 0.5}
    config = write_job(lm, tmp_path / "job", settings, held)
    loop.main(config)
    report = json.loads((config.parent / ADAPTER / REPORT).read_text())["stage"]
    assert report["kept"] < report["taken"] < 64  # these labels can't be learned, so validation ends it early
    assert report["epochs"] == pytest.approx(report["kept"] * BATCH / N)
    assert not report["cut_short"]
    assert len(logged(capsys.readouterr().out)) == report["taken"]

    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with pytest.warns(FutureWarning):
        wrapped = peft.PeftModel.from_pretrained(plain, str(config.parent / ADAPTER)).eval()
    query, correct = held.examples["query"], np.asarray(held.examples["correct"])
    spread = examples()["query"].take(np.arange(len(query)) * N // len(query))
    with torch.no_grad():
        last = [
            wrapped(torch.tensor(ids[i].astype(np.int64))[None]).logits[0, -1]
            for ids in (query, spread)
            for i in range(len(ids))
        ]
    sure, in_train = torch.stack(last)[:, [NO, YES]].softmax(1)[:, 1].double().numpy().reshape(2, -1)
    recorded = load_file(config.parent / ADAPTER / CONFIDENCES)
    best = int(np.argmin(report["losses"]))
    assert report["steps"][best] == report["kept"]
    assert recorded["validation"][best].numpy() == pytest.approx(sure, abs=1e-5)
    assert report["losses"][best] == pytest.approx(validation_loss(sure, correct), abs=1e-4)
    assert recorded["train"].numpy() == pytest.approx(in_train, abs=1e-5)


PAIR = """
import os, sys
from pathlib import Path
import peft, transformers.models.llama.modeling_llama
from bench.training import loop
other = os.fork()
os.environ |= {"RANK": str(int(other == 0)), "LOCAL_RANK": str(int(other == 0))}
loop.main(Path(sys.argv[1]))
sys.stdout.flush()
os._exit(0 if other == 0 or os.waitpid(other, 0)[1] == 0 else 1)
"""
"""Two processes that train together, as torchrun starts them, but with libraries that were loaded once."""


@pytest.mark.slow
def test_two_processes_train_as_one_does(lm: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**SETTINGS, "steps": 12, "learning_rate": 1e-2}
    first, second = (write_job(lm, tmp_path / name, settings, learnable()) for name in ("one", "two"))
    loop.main(first)
    one = logged(capsys.readouterr().out)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    environment = {**os.environ, "PYTHONPATH": str(Path(loop.__file__).parents[2]), "OMP_NUM_THREADS": "1", **meeting}
    done = subprocess.run(
        [sys.executable, "-c", PAIR, str(second)], capture_output=True, text=True, env=environment, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    two = logged(done.stdout)
    sure = [load_file(path.parent / ADAPTER / CONFIDENCES)["validation"] for path in (first, second)]
    torch.testing.assert_close(sure[0], sure[1], atol=1e-3, rtol=0)
    assert len(one) == len(two) == 12
    assert two[-1]["loss"] == pytest.approx(one[-1]["loss"], abs=1e-3)
    assert one[-1]["loss"] < 0.8 * one[0]["loss"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="DeepSpeed is for Linux")
@pytest.mark.parametrize(("processes", "clip"), [(1, 0.0), (1, 0.1), (2, 0.1)])
def test_deepspeed_trains_as_plain_torch_does(lm: LanguageModel, tmp_path: Path, processes: int, clip: float) -> None:
    """To the bit if nothing is clipped, as by the paper's settings; so what is installed changes no number."""
    settings = {**SETTINGS, "steps": 50, "learning_rate": 2e-3, "clip": clip}
    jobs = [write_job(lm, tmp_path / str(on), {**settings, "deepspeed": on}, learnable()) for on in (False, True)]
    losses = [[line["loss"] for line in finished(job, n)] for job, n in zip(jobs, (1, processes), strict=True)]
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-3)
    plain, zero = (load_file(job.parent / ADAPTER / "adapter_model.safetensors") for job in jobs)
    assert plain.keys() == zero.keys()
    assert clip or all(torch.equal(plain[name], zero[name]) for name in plain)


def test_single_process_asks_no_launcher_for_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert ProcessGroup("cuda", grouped=False).device == "cuda"


def test_processes_take_their_own_card_before_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    group = ProcessGroup("cuda", grouped=False)
    assert (group.device, group.rank, calls) == ("cuda:1", 5, ["cuda:1", "nccl"])


def test_process_group_ends_with_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    group = ProcessGroup("cpu", grouped=True)
    assert torch.distributed.is_initialized()
    group.close()
    assert not torch.distributed.is_initialized()


def test_gradients_are_clipped_over_all_parameters_together() -> None:
    ours, theirs = ([torch.nn.Parameter(torch.ones(n)) for n in (3, 2)] for _ in range(2))
    recipe = Recipe.of({**SETTINGS, "clip": 1.0})
    optimiser = TorchOptimiser(ours, recipe, ProcessGroup("cpu", grouped=False))
    adamw = torch.optim.AdamW(theirs, lr=1e-2, weight_decay=0.1)
    for length in (0.1, 5.0, 0.3):
        gradients = [torch.full((3,), length), torch.full((2,), -length)]
        optimiser.step(gradients, 1e-2)
        shrunk = min(1.0, 1.0 / (length * math.sqrt(5) + 1e-6))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient * shrunk
        adamw.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_parent_holds_no_weights_while_a_child_trains(
    trained: tuple[Path, AdapterRef], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, ids, read = load(folder), np.arange(12, 40, dtype=np.int32), {3: np.arange(28)}
    assert lm.uses_packs
    before = lm.session.read_alone(ids, read)[3]
    weights = [weakref.ref(lm.model), weakref.ref(lm.head.weight)]

    @contextmanager
    def started(config: Path, processes: int, devices: tuple[str, ...]) -> Iterator[Any]:
        assert [weight() for weight in weights] == [None, None]
        assert (processes, devices) == (1, ("cuda:1",))
        (config.parent / ADAPTER).mkdir()
        for name in (WEIGHTS, SETTINGS_FILE, "base_model.json", REPORT):
            shutil.copy(trained[1].folder / name, config.parent / ADAPTER / name)
        yield SimpleNamespace(stdout=[], wait=lambda: 0)

    card = SimpleNamespace(total_memory=85 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr(children, "start_child", started)
    lm.devices = ("cuda:1",)
    ref = trainer(lm, tmp_path)(loss=CT, examples=examples(), settings=SETTINGS)
    lm.devices = ("cpu",)
    assert torch.equal(lm.session.read_alone(ids, read)[3], before)
    with apply_adapter(lm, ref):
        through = lm.session.read_alone(ids, read)[3]
    plain = load(folder)
    with apply_adapter(plain, trained[1]):
        assert torch.equal(plain.session.read_alone(ids, read)[3], through)


@pytest.mark.slow
def test_child_runs_the_plugin_file_of_a_loss(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my_lora.py"
    path.write_text("from methods._shared.lora import ct_loss as loss\n")
    module = run_file(path)

    @contextmanager
    def started(*job: Any) -> Iterator[Any]:
        del sys.modules[module]  # as in a process of its own
        with here(*job) as process:
            yield process

    monkeypatch.setattr(children, "start_child", started)
    train = trainer(lm, tmp_path / "cache")
    assert train(loss=f"{module}:loss", examples=examples(), settings={**SETTINGS, "steps": 1}).folder.is_dir()


def test_crash_of_the_child_ends_with_its_log(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "moon_losses.py"
    # in the child alone, and before it loads a model
    plugin.write_text(
        "import os\n\nif 'CONFBENCH_PARENT' in os.environ:\n    print('before')\n"
        "    raise RuntimeError('the moon is in the wrong house')\n\n\ndef bad(*_):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError, match=r"failed \(exit code 1\): RuntimeError: the moon") as caught:
        trainer(lm, tmp_path / "cache")(loss="moon_losses:bad", examples=examples(), settings=SETTINGS)
    message = str(caught.value)
    assert "before\n" in message
    assert "the moon is in the wrong house" in message
    assert len(message.splitlines()) <= 33
    assert "deepspeed=false" not in message  # it was off


def test_deepspeed_that_fails_names_the_way_without_it(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def started(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(stdout=["RuntimeError: no compiler on this machine\n"], wait=lambda: 1)

    monkeypatch.setattr(children, "start_child", started)
    with pytest.raises(UserError, match=r"no compiler on this machine\n.*--set ct.deepspeed=false"):
        trainer(lm, tmp_path / "cache")(loss=CT, examples=examples(), settings={**SETTINGS, "deepspeed": True})


def test_deepspeed_is_needed_by_several_processes_alone(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "deepspeed" else found(name, *a))
    settings = {**SETTINGS, "deepspeed": True}

    def with_deepspeed(platform: str, processes: int) -> bool:
        monkeypatch.setattr(sys, "platform", platform)
        training = trainer(lm, tmp_path)
        training.processes = processes
        return training._job(CT, examples(), settings, Validation("", {})).recipe.deepspeed

    assert with_deepspeed("linux", 1) is False
    assert with_deepspeed("darwin", 4) is False
    with pytest.raises(UserError, match=r"4 cards .* of ct with DeepSpeed.*confbench\[deepspeed\].*ct.deepspeed=false"):
        with_deepspeed("linux", 4)


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"settings": {k: v for k, v in SETTINGS.items() if k != "rank"}}, ContractError, "lack rank"),
        ({"examples": {**examples(), "correct": np.ones(3, dtype=np.bool_)}}, ContractError, "one length"),
        ({"loss": "nowhere_at_all:loss"}, ContractError, "no importable"),
        ({"settings": {**SETTINGS, "target_modules": "c_atn"}}, UserError, "'c_atn' is no linear layer"),
        ({}, UserError, "bfloat16 or float32"),
    ],
    ids=["no rank", "two lengths", "no loss", "no layer", "half precision"],
)
def test_trainer_refuses(folder: Path, tmp_path: Path, changed: Any, error: type[Exception], told: str) -> None:
    half = LoadOptions(device="cpu", dtype="float32" if changed else "float16")
    train = trainer(LanguageModel(ModelSpec("llama", str(folder), local=True), half), tmp_path)
    with pytest.raises(error, match=told):
        train(**{"loss": CT, "examples": examples(), "settings": SETTINGS, **changed})


def test_target_modules_name_the_trained_layers(lm: LanguageModel, tmp_path: Path) -> None:
    recipe = Recipe.of({**SETTINGS, "target_modules": "o_proj"})
    assert trainer(lm, tmp_path)._targets(recipe) == [f"model.layers.{i}.self_attn.o_proj" for i in range(3)]


def test_trainer_trusts_no_folder_that_others_write(lm: LanguageModel, tmp_path: Path) -> None:
    train, none = trainer(lm, tmp_path), Validation("", {})
    key = key_of(train._fields(train._job(CT, examples(), SETTINGS, none), examples(), none))
    (tmp_path / "training" / key).mkdir(parents=True)
    (tmp_path / "training" / key).chmod(0o777)
    with pytest.raises(UserError, match="can't be trusted"):
        train(loss=CT, examples=examples(), settings=SETTINGS)


# --- schedule and batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(24, 8), (7, 7), (10, 4), (33, 32)])
def test_batch_rows_hold_every_example_once_an_epoch(n: int, size: int) -> None:
    recipe = Recipe.of({**SETTINGS, "batch_size": size})
    stream = np.concatenate([loop.batch_rows(n, step, recipe) for step in range(3 * n)])
    for epoch in range(3):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))
    assert not np.array_equal(stream[:n], stream[n : 2 * n])


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=7, unique=True), st.integers(1, 14))
def test_groups_feed_the_fewest_tokens(words: list[str], budget: int) -> None:
    """Against all cuts of the sorted sequences, each pass with its distinct prefixes."""
    sequences = [np.asarray([ord(letter) for letter in word], dtype=np.int32) for word in words]

    def fed(groups: Iterable[Sequence[str]]) -> int:
        return sum(len({word[:n] for word in group for n in range(1, len(word) + 1)}) for group in groups)

    ordered, cuts = sorted(words), list[tuple[int, int]]()
    for chosen in itertools.product((False, True), repeat=len(words) - 1):
        ends = [0, *(k for k, cut in enumerate(chosen, start=1) if cut), len(words)]
        pieces = [ordered[a:b] for a, b in itertools.pairwise(ends)]
        if all(len(piece) == 1 or fed([piece]) <= budget for piece in pieces):
            cuts.append((fed(pieces), len(pieces)))
    groups = [[words[i] for i in group] for group in group_sequences(sequences, budget)]
    assert (fed(groups), len(groups)) == min(cuts)
    assert sorted(itertools.chain.from_iterable(groups)) == ordered


# --- the adapter on the model --------------------------------------------------------------------------------------


def verdicts(lm: LanguageModel) -> torch.Tensor:
    """QueryLogits of the examples as a run reads them, packed and on a shared cache."""
    asking = PromptSettings(1, np.asarray([20, 21]), np.asarray([7, 8], dtype=np.int32), np.asarray([NO, YES]), 40)
    given, signal = examples(), QueryLogits()
    items = [
        ModelInput(given["prompt"][i].astype(np.int32), 2, given["query"][i][-3:-2].astype(np.int32)) for i in range(N)
    ]
    measured = Extractor(lm, asking, pass_definitions([signal])).extract(items)
    return measured.columns[signal]["values"]


def plain_verdicts(model: Any) -> torch.Tensor:
    given = examples()
    with torch.no_grad():
        return torch.stack([model(torch.tensor(given["query"][i])[None]).logits[0, -1, [NO, YES]] for i in range(N)])


def test_adapter_is_pefts_and_leaves_every_bit(
    trained: tuple[Path, AdapterRef], lm: LanguageModel, folder: Path
) -> None:
    before, weights = verdicts(lm), {k: v.clone() for k, v in lm.model.state_dict().items()}
    session = lm.session
    with apply_adapter(lm, trained[1]):
        through = verdicts(lm)
        assert lm.session is not session
    after = verdicts(lm)
    assert torch.equal(before, after)
    assert lm.session is session
    assert lm.model.state_dict().keys() == weights.keys()
    assert all(torch.equal(v, weights[k]) for k, v in lm.model.state_dict().items())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with pytest.warns(FutureWarning):
        wrapped = peft.PeftModel.from_pretrained(model, str(trained[1].folder)).eval()
    torch.testing.assert_close(through, plain_verdicts(wrapped), atol=1e-4, rtol=1e-4)
    assert (through - before).abs().max() > 0.1


def cut_off(path: Path) -> None:
    path.write_bytes(b"cut")


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("adapter_model.safetensors", flipped, "a file of it was altered"),
        ("adapter_config.json", flipped, "a file of it was altered"),
        ("base_model.json", flipped, "a file of it was altered"),
        ("adapter_model.safetensors", cut_off, "can't be loaded"),
        ("adapter_model.safetensors", Path.unlink, r"missing: adapter_model\.safetensors"),
        ("", None, r"trained on model 'llama'.*not on 'other'"),
    ],
)
def test_adapter_is_refused(
    trained: tuple[Path, AdapterRef], lm: LanguageModel, tmp_path: Path, name: str, damage: Any, told: str
) -> None:
    """Altered, incomplete, or of another model; one that was cut off is so by its own account."""
    ref = AdapterRef(tmp_path / "copy", trained[1].fingerprint)
    shutil.copytree(trained[1].folder, ref.folder)
    if damage is None:
        lm = load(save_model(tmp_path / "other", llama(), seed=1), "other")
    else:
        damage(ref.folder / name)
    if damage is cut_off:
        ref = replace(ref, fingerprint=fingerprint(ref.folder))
    with pytest.raises(UserError, match=told), apply_adapter(lm, ref):
        pass
    plain_verdicts(lm.model)  # the model still works


# --- which layers -----------------------------------------------------------------------------------------------------


def parts(config: Any) -> list[tuple[str, str]]:
    return [(p.name, p.part) for p in of_config(config) if p.part]


def test_projections_are_found_by_name_or_shape() -> None:
    assert parts(llama(num_hidden_layers=1)) == [("q_proj", "query"), ("v_proj", "value")]
    assert parts(transformers.OPTConfig(num_hidden_layers=1)) == [("v_proj", "value"), ("q_proj", "query")]
    assert parts(transformers.CTRLConfig(n_layer=1)) == [("Wq", "query"), ("Wv", "value")]  # other names
    for config, name in (
        (transformers.GPT2Config(n_layer=1), "c_attn"),
        (transformers.GPTNeoXConfig(num_hidden_layers=1), "query_key_value"),
        (transformers.Phi3Config(num_hidden_layers=1, pad_token_id=0), "qkv_proj"),
    ):
        assert parts(config) == [(name, "fused")]


def gpt2(folder: Path) -> Path:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    return save_model(folder, config)


def phi3(folder: Path) -> Path:
    config = transformers.Phi3Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return save_model(folder, config)


@pytest.mark.parametrize(("made", "layer"), [(gpt2, "c_attn"), (phi3, "qkv_proj")])
def test_fused_projections_are_found_and_trained(
    made: Callable[[Path], Path], layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "start_child", here)
    train = trainer(load(made(tmp_path / "model"), "fused"), tmp_path / "cache")
    ref = train(loss=CT, examples=examples(), settings=SETTINGS)
    tensors = load_file(ref.folder / "adapter_model.safetensors")
    assert {name.split(".")[-3] for name in tensors} == {layer}
    assert all(array.any() for array in tensors.values())  # B begins as 0


def test_adapter_is_trained_on_the_device_of_its_process(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, each of two processes would take the first card."""
    asked: list[LoadOptions] = []

    def load(_: object, options: LoadOptions) -> None:
        asked.append(options)
        raise InterruptedError

    monkeypatch.setattr(loop, "LanguageModel", load)
    for devices in ((), ("cuda:0", "cuda:1")):
        job = loop.Job.read(write_job(lm, tmp_path / str(len(devices)), SETTINGS))
        job = replace(job, load={**job.load, "devices": list(devices)})
        with pytest.raises(InterruptedError):
            loop._Training(job, tmp_path / str(len(devices)), SimpleNamespace(device="cuda:1"))
    assert [(options.device, options.devices) for options in asked] == [("cuda:1", ()), (None, ("cuda:0", "cuda:1"))]
