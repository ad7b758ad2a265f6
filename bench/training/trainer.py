"""Adapter training in the parent process: take the adapter from the store, or start a child process that trains it.

An adapter's key in the store is a digest of all that the adapter depends on: weights, dtype, examples, the loss
function's source with its imports, settings, number of processes and more. So a second run trains nothing. A killed
training resumes from its last checkpoint, which is stored under the same key.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from bench.api import AdapterRef, ContractError, FloatArray, Ragged, UserError, Validation
from bench.api.early_stopping import TrainingStage
from bench.model.cost import StageTokens
from bench.model.devices import device_kind, training_budget
from bench.progress import Progress, Silent
from bench.registry import PLUGIN_FILE
from bench.store.decoding import decode_record
from bench.store.disk_cache import Entry, Store, digest_arrays, key_of
from bench.store.sources import module_digest, source_digest
from bench.store.usage import ADAPTERS
from bench.training.assignment import Assignment, Examples, way_out
from bench.training.job import CONFIDENCES, REPORT, Job, Recipe

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.model.training_memory import TrainingPlan

VERSION = 3
"""Part of the store key of every adapter; increased when the same training job would give another adapter."""


class DeferredTrainingError(UserError):
    """An adapter is not in the store yet, e.g. since another machine trains it; its method is fitted again later."""


class Elsewhere(Protocol):
    """Protocol of a client that lets other machines train adapters."""

    def begun(self, key: str) -> bool:
        """Return whether this run has started the training of an adapter elsewhere; `key` is its key in the store."""

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """Start the training of an adapter on another machine, unless this run has started it before.

        Args:
            key: key of the adapter in the store.
            work: the training.
            wait: whether to wait until the training ends.

        Returns:
            Seconds of the training and notes for the user; None if the training is still running.

        Raises:
            UserError: the training failed, or no machine has enough devices.
            DeferredTrainingError: the training is not started now.
        """


@dataclass
class AdapterTrainer:
    """Trains adapters on one model for one method; a run passes it to the method as `ctx.train_adapter`."""

    lm: LanguageModel
    store: Store
    method: str
    """Name of the method, for messages."""
    verdict_ids: tuple[int, int]
    """Token ids of (no, yes) after the self-check query."""
    processes: int | None = None
    """Number of processes that train together. None means one per GPU if the run is on `cuda`, and otherwise one."""
    token_budget: int | None = None
    """Approximate number of tokens of a forward pass; None chooses it by the device.

    With fewer tokens, a step takes more passes.
    """
    checkpoint_every: int = 50
    """Number of steps from one checkpoint to the next."""
    progress: Progress = field(default_factory=Silent)
    elsewhere: Elsewhere | None = None
    """Client of the other machines that train adapters; None if this machine trains them."""
    waits: bool = True
    """Whether to wait for a training on another machine; if not, `DeferredTrainingError` is raised until it has ended.
    """
    put_off: bool = field(default=False, init=False)
    """Whether this trainer has raised `DeferredTrainingError`, even if the method caught it."""
    remote_seconds: float = field(default=0.0, init=False)
    """Sum of the seconds that finished trainings on other machines took."""

    def __call__(
        self, *, loss: str, examples: Examples, settings: Mapping[str, object], validation: Validation | None = None
    ) -> AdapterRef:
        """Return a trained adapter, from the store or after training it; see `bench.api.TrainAdapter` for arguments."""
        from bench.model import adapter

        val = validation or Validation("", {})
        job = self._job(loss, examples, settings, val)
        fields = self._fields(job, examples, val)
        key = key_of(fields)
        begun = self.elsewhere is not None and self.elsewhere.begun(key)
        entry = None if begun else self.store.get(ADAPTERS, key)
        if entry is None:
            self._plan(job.recipe, examples).check()
            work = Assignment(
                method=self.method, key=key, fields=fields, job=job, examples=examples, validation=val.examples,
                processes=self._n_processes, devices=tuple(self.lm.devices),
            )  # fmt: skip
            if self.elsewhere is None:
                # on the CPU, weights are memory-mapped files, which the child shares
                make_room = self.lm.release if device_kind(self.lm.device) != "cpu" else lambda: None
                entry = work.carry_out(self.store, self.progress, make_room)
            else:
                entry = self._train_elsewhere(self.elsewhere, work)
        return AdapterRef(entry.folder, adapter.fingerprint(entry.folder))

    def _train_elsewhere(self, elsewhere: Elsewhere, work: Assignment) -> Entry:
        try:
            report = elsewhere.train(work.key, replace(work, devices=(device_kind(self.lm.device),)), wait=self.waits)
        except DeferredTrainingError:
            self.put_off = True
            raise
        if report is None:
            self.put_off = True
            self.progress.say(f"the adapter of {self.method} is being trained on the cluster; other work goes on")
            raise DeferredTrainingError(f"put off: the adapter of {self.method} is being trained on another machine")
        self.remote_seconds += report[0]
        self.store.notes += report[1]
        entry = self.store.get(ADAPTERS, work.key)
        if entry is None:
            raise UserError(
                f"The adapter of {self.method} was trained on another machine and is not in the cache folder of this"
                " one. Set CONFBENCH_CACHE to a folder that all machines share."
            )
        return entry

    # --- the job ------------------------------------------------------------------------------------------------------

    def _plan(self, recipe: Recipe, examples: Examples) -> TrainingPlan:
        """Return a plan: whether the training fits into memory, with passes large enough for the longest example."""
        from bench.model.training_memory import plan_training

        ids = next(iter(examples.values()))
        longest = int(ids.lengths.max(initial=0)) if isinstance(ids, Ragged) else 0
        tokens = max(self._budget, longest)
        return plan_training(self.lm, tokens, rank=recipe.rank, named=recipe.target_modules)

    @property
    def _budget(self) -> int:
        return self.token_budget or training_budget(*self.lm.devices)

    def _job(self, loss: str, examples: Examples, settings: Mapping[str, object], validation: Validation) -> Job:
        recipe = Recipe.of(settings)
        _check_examples(examples)
        if validation.confidence:
            _check_examples(validation.examples)
        values = dict(settings)
        # DeepSpeed supports one GPU per process; a model split over GPUs is trained in plain torch, in the same way
        use_deepspeed = recipe.deepspeed and len(self.lm.devices) == 1
        values["deepspeed"] = use_deepspeed and importlib.util.find_spec("deepspeed") is not None
        if use_deepspeed and not values["deepspeed"] and self._n_processes > 1 and sys.platform == "linux":
            raise UserError(
                f"{self._n_processes} cards would train the adapter of {self.method} with DeepSpeed, which is not"
                f" installed. Install it: pip install 'confbench[deepspeed]'. {way_out(self.method)}, or on one card:"
                " CUDA_VISIBLE_DEVICES=0."
            )
        options, spec = self.lm.options, self.lm.spec
        if self.lm.dtype_name == "float16":
            raise UserError(
                f"{self.method} can't be trained in float16, whose gradients underflow:"
                " use --dtype bfloat16 or float32."
            )
        folders, plugins = [], []  # the former for `sys.path`, to import the functions' packages
        for name in filter(None, (loss, validation.confidence)):
            module_path, module = _file(name), name.partition(":")[0]
            folders.append(str(module_path.parents[module.count(".") + (module_path.name == "__init__.py")]))
            plugins += [str(module_path)] * module.startswith(PLUGIN_FILE)
        # resolved, so that any process loads the model without asking the hub for its newest revision
        source = str(Path(spec.source).resolve()) if spec.local else str(spec.source)
        return Job(
            model=asdict(spec) | {"source": source, "revision": self.lm.files.commit or spec.revision},
            weights=self.lm.fingerprint,
            load={
                "device": device_kind(self.lm.device),
                "dtype": self.lm.dtype_name,
                "trust_remote_code": options.trust_remote_code,
                "devices": [str(number) for number in range(len(self.lm.options.devices))],
                # absolute, since the process that trains has another working folder
                "tokenizer": _absolute(options.tokenizer),
                "cache": options.cache and str(Path(options.cache).resolve()),
            },
            loss=loss,
            settings=values,
            columns=tuple(examples),
            confidence=validation.confidence,
            validation=tuple(validation.examples),
            targets=tuple(self._targets(recipe)),
            verdict_ids=self.verdict_ids,
            packed=self.lm.uses_packs,
            token_budget=self._budget,
            checkpoint_every=self.checkpoint_every,
            checkpointing=self._plan(recipe, examples).checkpointing,
            search=tuple(dict.fromkeys(folders)),
            plugins=tuple(dict.fromkeys(plugins)),
        )

    def _fields(self, job: Job, examples: Examples, validation: Validation) -> dict[str, Any]:
        """Return the fields of the adapter's store key: everything that the adapter depends on."""
        return {
            "confidence": {"name": job.confidence, "source": _source(job.confidence)} if job.confidence else None,
            "validation": {name: _digest(column) for name, column in validation.examples.items()},
            "weights": job.weights,
            "dtype": job.load["dtype"],
            "device": device_kind(self.lm.device),
            "attention": self.lm.attention,
            "loss": {"name": job.loss, "source": _source(job.loss)},
            "settings": dict(job.settings),
            "examples": {name: _digest(column) for name, column in examples.items()},
            "targets": list(job.targets),
            "verdict_ids": list(job.verdict_ids),
            "packed": job.packed,
            "token_budget": job.token_budget,
            **({"checkpointing": True} if job.checkpointing else {}),
            "processes": self._n_processes,
            "trainer": VERSION,
        }

    def _targets(self, recipe: Recipe) -> list[str]:
        from bench.model import linear_layers

        try:
            return linear_layers.target_paths(self.lm.layers, recipe.target_modules)
        except UserError as error:
            raise UserError(str(error).replace("METHOD.", f"{self.method}.")) from error

    @cached_property
    def _n_processes(self) -> int:
        if self.processes is not None:
            return self.processes
        if self.lm.device != "cuda":
            return 1
        import torch

        return max(1, torch.cuda.device_count())


def training_cost(ref: AdapterRef) -> StageTokens:
    """Return the token positions that the training of this adapter fed to the model, from the training's report."""
    report = training_report(ref)
    return StageTokens(report["forward_tokens"], report["padded_tokens"], report["forward_tokens_floor"])


def training_report(ref: AdapterRef) -> dict[str, Any]:
    """Return a training's report: steps, final loss, seconds, token positions, processes, and use of DeepSpeed."""
    return dict(json.loads((ref.folder / REPORT).read_text(encoding="utf-8")))


def load_training_stage(ref: AdapterRef) -> TrainingStage:
    """Return the record of a training: its steps, the kept step, and the validation loss at each evaluation."""
    return decode_record(training_report(ref)["stage"], TrainingStage)


def confidences(ref: AdapterRef) -> dict[str, FloatArray]:
    """Return the confidences that a training recorded, by name; empty without validation examples.

    The array `validation` `(points, n)` has the confidences in n validation examples at each evaluation. The array
    `train` `(m,)` has the kept adapter's confidences in the training examples `np.arange(m) * N // m` of N.
    """
    from safetensors.numpy import load_file

    path = ref.folder / CONFIDENCES
    return load_file(path) if path.is_file() else {}


def _check_examples(examples: Examples) -> None:
    sizes = {name: len(column) for name, column in examples.items()}
    if not isinstance(next(iter(examples.values()), None), Ragged) or len(set(sizes.values())) != 1:
        raise ContractError(
            f"train_adapter: expected columns of one length, the first a Ragged of token ids; got {sizes or 'none'}"
        )


def _absolute(tokenizer: str | None) -> str | None:
    return str(Path(tokenizer).resolve()) if tokenizer is not None and Path(tokenizer).is_dir() else tokenizer


def _digest(column: Ragged | npt.NDArray[Any]) -> str:
    arrays = [column.values, column.offsets] if isinstance(column, Ragged) else [column]
    return " ".join([*(f"{array.dtype} {array.shape}" for array in arrays), digest_arrays(arrays)])


def _source(function: str) -> str:
    path, module = _file(function), function.partition(":")[0]
    # of a built-in function its file alone, so that adapters that were trained stay valid
    return source_digest([path]) if module.startswith("methods.") else module_digest(module, path)


def _file(function: str) -> Path:
    module = function.partition(":")[0]
    try:
        return Path(inspect.getfile(importlib.import_module(module))).resolve()
    except (ImportError, TypeError) as error:
        raise ContractError(f"train_adapter: {function!r} is no importable `module:function` ({error})") from error
