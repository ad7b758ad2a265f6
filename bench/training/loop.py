"""Training loop of the child process: add a LoRA adapter, train it, write checkpoints, save the adapter."""

from __future__ import annotations

import gc
import importlib
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from bench.api import AdapterModel, Batch, EarlyStopping, FloatArray, Ragged, UserError
from bench.model.adapter import SETTINGS, WEIGHTS, record_base, set_dropout, with_lora
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.session import checkpoint_blocks
from bench.model.specs import ModelSpec
from bench.registry import run_file
from bench.store.disk_cache import MANIFEST, digest_file, key_of, verify_folder, write_manifest
from bench.store.files import write_atomic, write_json
from bench.training.job import (
    ADAPTER,
    CHECKPOINTS,
    CONFIDENCES,
    EXAMPLES,
    REPORT,
    VALIDATION,
    Column,
    Job,
    Recipe,
    read_examples,
    select_rows,
)
from bench.training.model import LossProbe, ReadableModel, TokensFed, frozen_requests, group_sequences
from bench.training.optimisers import DeepSpeedOptimiser, ProcessGroup, TorchOptimiser

ExampleFunction = Callable[[AdapterModel, Mapping[str, Column], Mapping[str, Any]], torch.Tensor]
"""Function of (model, examples, settings) that returns either the sum of the examples' losses or their confidences.

A sum of losses has a gradient; confidences have the shape `(n,)`.
"""
Rows = npt.NDArray[np.int64]
_STATE, _BEST = "state.json", "best.safetensors"
"""File names in a checkpoint: of the training's state, and of the best adapter so far.

The adapter's file also has the confidences in the validation examples at each evaluation so far.
"""
N_CHECKPOINTS = 2
"""Number of checkpoints that are kept; the older one is a fallback if the newer one is damaged."""
_NAME = re.compile(r"step-(\d{1,15})")
_VAL_KEY, _TRAIN_KEY = "validation confidences", "train confidences"
"""Names of the two tensors in `best.safetensors` that hold confidences: in validation and in training examples."""


def main(config: Path) -> None:
    """Train the adapter that a configuration file describes, and write it into the folder of that file."""
    job = Job.read(config)
    sys.path.extend(folder for folder in job.search if folder not in sys.path)
    for plugin in job.plugins:
        run_file(Path(plugin))
    processes = ProcessGroup(str(job.load["device"]), grouped=job.recipe.deepspeed)
    try:
        training = _Training(job, config.parent, processes)
        gc.enable()  # libraries and model are loaded
        training.run()
        processes.wait()
    finally:
        processes.close()


class _Training:
    """The training of one adapter in one process, alone or together with other processes."""

    def __init__(self, job: Job, folder: Path, processes: ProcessGroup) -> None:
        self.job = job
        self.recipe: Recipe = job.recipe
        self.folder = folder
        self.processes = processes
        self.loss = _load_function(job.loss)
        self.examples = read_examples(folder / EXAMPLES, job.columns)
        self.validation = read_examples(folder / VALIDATION, job.validation)
        correct = np.asarray(self.validation["correct"]) if job.confidence else None
        self.stopping = EarlyStopping(
            self.recipe.steps,
            None if correct is None else Batch([""] * len(correct), {}, correct),
            published=self.recipe.published_steps,
            points=self.recipe.points,
            epochs_per_step=self.recipe.batch_size / self._n,
        )
        devices = tuple(job.load["devices"])
        options = replace(LoadOptions(**job.load), device=None if devices else processes.device, devices=devices)
        self.lm = LanguageModel(ModelSpec(**{**job.model, "tasks": tuple(job.model["tasks"])}), options)
        torch.manual_seed(self.recipe.seed)  # for the initial weights of the adapter
        self.wrapped = with_lora(
            self.lm.model, job.targets, rank=self.recipe.rank, alpha=self.recipe.alpha, dropout=self.recipe.dropout
        )
        if job.checkpointing:
            checkpoint_blocks(self.lm.model)
        self.parameters = [p for p in self.wrapped.parameters() if p.requires_grad]
        kind = DeepSpeedOptimiser if self.recipe.deepspeed else TorchOptimiser
        self.optimiser = kind(self.parameters, self.recipe, processes)
        self.model = ReadableModel(self.lm, self.wrapped, job)
        self.fed = TokensFed()
        self.seconds = 0.0
        self.last_loss: float | None = None

    def run(self) -> None:
        self._cache_frozen_states()
        self._resume()
        for step in self.stopping:
            self._step(step - 1)
            if self.stopping.due:
                self.stopping.record(
                    lambda _: self._confidences(self.validation, len(self.validation["correct"])), keep=self._snapshot
                )
            if step % self.job.checkpoint_every == 0 and step < self.recipe.steps:
                self._checkpoint(step)
        if self.processes.rank == 0:
            self._save()

    def _snapshot(self) -> dict[str, torch.Tensor]:
        """Return copies of the adapter's current tensors and, if the job has a function for them, current confidences.

        The confidences are those in training examples at even distances, as many as there are validation examples; in
        all training examples if they are fewer.
        """
        from peft import get_peft_model_state_dict

        tensors = {name: t.detach().cpu().clone() for name, t in get_peft_model_state_dict(self.wrapped).items()}
        if not self.job.confidence:
            return tensors
        n = min(self._n, len(self.validation["correct"]))
        # not the first ones: corpora are ordered by data set or subject
        examples = select_rows(self.examples, np.arange(n) * self._n // n)
        return {**tensors, _TRAIN_KEY: torch.from_numpy(self._confidences(examples, n))}

    def _confidences(self, examples: Mapping[str, Column], n: int) -> FloatArray:
        """Return the current adapter's confidences `(n,)` in the first n examples, without dropout."""
        start = time.perf_counter()
        compute = _load_function(self.job.confidence)
        p = torch.zeros(n, dtype=torch.float64)
        self._count(0.0)
        set_dropout(self.wrapped, on=False)
        with torch.no_grad():
            for rows in self._micro_batches(examples, self._shard(examples, np.arange(n))):
                p[rows] = compute(self.model, select_rows(examples, rows), self.job.settings).double().cpu()
        set_dropout(self.wrapped, on=True)
        self._count(0.0)
        self.seconds += time.perf_counter() - start
        return np.asarray(self.processes.sum(p).cpu().numpy())

    def _cache_frozen_states(self) -> None:
        """Compute the frozen model's hidden states that the loss function needs at any step, in few large passes.

        A resumed training computes the states for its finished steps, too: with other passes, rounding would differ.
        """
        start = time.perf_counter()
        steps = range(self.recipe.steps)
        shards = [self._shard(self.examples, batch_rows(self._n, step, self.recipe)) for step in steps]
        rows = np.unique(np.concatenate([*shards, np.zeros(0, dtype=np.int64)]))

        def run_loss(probe: LossProbe) -> None:
            for first in range(0, len(rows), self.recipe.batch_size):
                batch = rows[first : first + self.recipe.batch_size]
                self.loss(probe, select_rows(self.examples, batch), self.job.settings)

        self.model.cache_frozen_states(frozen_requests(run_loss, self.job.verdict_ids, len(self.lm.head.weight)))
        self._count(0.0)
        self.seconds += time.perf_counter() - start

    def _count(self, loss: float) -> float:
        """Add up the tokens that all processes fed to the model since the last call; return the sum of all losses."""
        fed = self.model.fed
        totals = torch.tensor([loss, fed.forward, fed.floor], dtype=torch.float64)
        total, forward, floor = self.processes.sum(totals).tolist()
        self.fed.forward += int(forward)
        self.fed.floor += int(floor)
        self.model.start_step()
        return float(total)

    def _step(self, step: int) -> None:
        start = time.perf_counter()
        # half a cosine to 0 at the end, without warm-up (docs/methods.md §0.8)
        rate = self.recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / self.recipe.steps))
        loss, gradients = self._gradients(step)
        self.optimiser.step(gradients, rate)
        self.last_loss = self._count(loss)
        if not math.isfinite(self.last_loss):
            raise UserError(f"The loss was {self.last_loss} at step {step}: try a smaller learning_rate.")
        self.seconds += time.perf_counter() - start
        if self.processes.rank == 0:
            line = {"step": step + 1, "loss": self.last_loss, "lr": rate, "seconds": round(self.seconds, 3)}
            print(json.dumps(line), flush=True)  # noqa: T201  (the parent reads it)

    def _gradients(self, step: int) -> tuple[float, list[torch.Tensor]]:
        """Return the part of the batch's mean loss that this process computes, and its gradient in float32."""
        total = 0.0
        sums = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in self.parameters]
        rows = batch_rows(self._n, step, self.recipe)
        for index, batch in enumerate(self._micro_batches(self.examples, self._shard(self.examples, rows))):
            seeds = [self.recipe.seed, step, self.processes.rank, index]
            torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))  # for dropout
            loss = self.loss(self.model, select_rows(self.examples, batch), self.job.settings) / len(rows)
            for sum_, gradient in zip(sums, torch.autograd.grad(loss, self.parameters), strict=True):
                sum_.add_(gradient)
            total += loss.item()
        return total, sums

    @property
    def _n(self) -> int:
        return len(self.examples[self.job.columns[0]])

    def _shard(self, examples: Mapping[str, Column], rows: Rows) -> Rows:
        """Return the part of the given rows of examples that this process computes.

        Rows with a common prefix of token ids go to one process where possible.
        """
        column = _ids(examples)
        sorted_rows = sorted(rows.tolist(), key=lambda row: (column[row].astype(">i4").tobytes(), row))
        return np.array_split(np.asarray(sorted_rows), self.processes.size)[self.processes.rank]

    def _micro_batches(self, examples: Mapping[str, Column], shard: Rows) -> Iterator[Rows]:
        """Yield this process's rows of examples in groups, each for one forward pass."""
        column = _ids(examples)
        members: dict[bytes, list[int]] = {}
        for row in shard.tolist():
            members.setdefault(column[row].tobytes(), []).append(row)
        if not self.job.packed:
            yield from (np.asarray([row]) for row in shard.tolist())
            return
        distinct = list(members.values())
        sequences = [column[same[0]].astype(np.int32) for same in distinct]
        for group in group_sequences(sequences, self.job.token_budget):
            yield np.asarray([row for i in group for row in distinct[i]])

    # --- files --------------------------------------------------------------------------------------------------------

    def _checkpoint(self, step: int) -> None:
        """Write the checkpoint of a step atomically: optimiser, best adapter so far, and state of the training."""
        from safetensors.torch import save

        root = self.folder / CHECKPOINTS
        folder = root / f"partial-{step}"
        if self.processes.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            state = {"fed": asdict(self.fed), "seconds": self.seconds, "loss": self.last_loss}
            state["stage"] = asdict(self.stopping.stage())
            write_json(folder / _STATE, state)
            write_atomic(folder / _BEST, save(self._on_validation() | (self.stopping.kept or {})))
        self.processes.wait()
        self.optimiser.save(folder)
        self.processes.wait()
        if self.processes.rank == 0:
            write_manifest(folder, {"job": self._identity(), "step": step})
            final = root / f"step-{step}"
            shutil.rmtree(final, ignore_errors=True)
            folder.rename(final)
            retained = {root / f"step-{each}" for each in _steps(root)[:N_CHECKPOINTS]}
            for old in set(root.iterdir()) - retained:
                shutil.rmtree(old, ignore_errors=True)

    def _resume(self) -> None:
        """Resume the training from its newest intact checkpoint, if there is one."""
        from safetensors.torch import load_file

        step = self._newest_checkpoint() if self.processes.rank == 0 else 0  # rank 0 looks for all processes
        step = int(self.processes.sum(torch.tensor([step])).item())
        if not step:
            return
        folder = self.folder / CHECKPOINTS / f"step-{step}"
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        self.optimiser.load(folder)
        self.fed, self.seconds, self.last_loss = TokensFed(**state["fed"]), state["seconds"], state["loss"]
        best = load_file(folder / _BEST)
        validation = best.pop(_VAL_KEY, None)
        confidences = [] if validation is None else list(validation.numpy())
        self.stopping.resume(step, state["stage"]["steps"], state["stage"]["losses"], confidences, best or None)

    def _newest_checkpoint(self) -> int:
        """Return the step of the newest intact checkpoint, or 0; damaged checkpoints are removed with a note.

        Raises:
            UserError: a checkpoint can't be read at the moment; this checkpoint is not removed.
        """
        root, job = self.folder / CHECKPOINTS, self._identity()
        for step in _steps(root):
            folder = root / f"step-{step}"
            try:
                damage, manifest = verify_folder(folder, {"job": job, "step": step})
                if damage is None:
                    extra = {path.name for path in folder.iterdir()} - {MANIFEST, *manifest["files"]}
                    damage = f"{min(extra)} is too much" if extra else None
            except OSError as error:
                raise UserError(
                    f"The checkpoint {folder.name} of a training can't be read: {error.strerror}. It was not removed;"
                    " run the command again when it can."
                ) from error
            if damage is None:
                return step
            shutil.rmtree(folder, ignore_errors=True)
            note = (
                f"checkpoint {folder.name} of a training was damaged ({damage}); training repeats the steps before it"
            )
            print(json.dumps({"note": note}), flush=True)  # noqa: T201  (the parent reads it)
        return 0

    def _identity(self) -> str:
        """Return a digest of all that the training depends on, without paths; the training's checkpoints hold it."""
        job = asdict(self.job) | {"search": [], "plugins": [], "model": {**self.job.model, "source": ""}}
        job["load"] |= {"cache": None, "tokenizer": None}  # the weights' fingerprint has the tokenizer's files
        return key_of({"job": job, **{name: digest_file(self.folder / name) for name in (EXAMPLES, VALIDATION)}})

    def _on_validation(self) -> dict[str, torch.Tensor]:
        """Return `_VAL_KEY` -> confidences `(points, n)` in n validation examples, at all evaluations so far.

        The mapping is empty before the first evaluation.
        """
        confidences = self.stopping.confidences
        return {_VAL_KEY: torch.from_numpy(np.stack(confidences))} if confidences else {}

    def _save(self) -> None:
        """Save the kept adapter in peft's format, with confidences and report, and remove the checkpoints.

        The kept adapter is the best one in validation, or without validation that of the last step.
        """
        from safetensors.torch import save

        folder = self.folder / ADAPTER
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tensors = {name: tensor.contiguous() for name, tensor in self.stopping.kept.items()}
        train = tensors.pop(_TRAIN_KEY, None)
        write_atomic(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
        if train is not None:
            write_atomic(folder / CONFIDENCES, save({"train": train, "validation": self._on_validation()[_VAL_KEY]}))
        config = self.wrapped.peft_config["default"]
        config.base_model_name_or_path = self.job.model["name"]  # else a local folder
        config.inference_mode = True
        config.save_pretrained(str(folder))
        if not (folder / SETTINGS).is_file():
            raise UserError(f"peft wrote no {SETTINGS}; expected a version of it that does, 0.13 or newer.")
        record_base(folder, self.job.weights, self.job.model["name"])
        report = {
            "steps": self.stopping.step,
            "stage": asdict(self.stopping.stage()),
            "loss": self.last_loss,
            "seconds": round(self.seconds, 3),
            "forward_tokens": self.fed.forward,
            "padded_tokens": self.fed.forward,
            "forward_tokens_floor": self.fed.floor,
            "processes": self.processes.size,
            "deepspeed": self.recipe.deepspeed,
            "token_budget": self.job.token_budget,
            "checkpointing": self.job.checkpointing,
        }
        write_json(folder / REPORT, report)
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)


def _steps(root: Path) -> list[int]:
    """Return the step numbers of the checkpoints in a folder, the newest first."""
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)


def _ids(examples: Mapping[str, Column]) -> Ragged:
    """Return the first column of examples: the token ids by which examples are grouped into forward passes."""
    return cast("Ragged", next(iter(examples.values())))


def _load_function(name: str) -> ExampleFunction:
    """Import and return the function that a name of the form `module:function` means.

    Raises:
        UserError: the function can't be imported.
    """
    module, _, function = name.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(f"Function {name!r}: expected an importable `module:function` ({error}).") from error
    return cast("ExampleFunction", loaded)


def batch_rows(n: int, step: int, recipe: Recipe) -> Rows:
    """Return the indices `(batch_size,)` of the examples in the batch of a training step.

    Batches are consecutive parts of an endless sequence, in which each epoch is a random permutation of all examples.

    Args:
        n: number of examples.
        step: index of the step, from 0.
        recipe: recipe with the batch size and the seed.
    """
    first, end = step * recipe.batch_size, (step + 1) * recipe.batch_size
    epochs = range(first // n, (end - 1) // n + 1)
    rows = np.concatenate([np.random.default_rng([recipe.seed, epoch]).permutation(n) for epoch in epochs])
    return rows[first - epochs[0] * n :][: recipe.batch_size]
