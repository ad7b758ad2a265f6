"""The parent: finds an adapter in the store by what it would be trained on, or has a child train it.

The key is made of weights, dtype, examples, the loss function's source, settings and number of processes, so a second
run trains nothing. A job that was killed is found again by the same key and goes on from its last checkpoint.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from bench.api import AdapterRef, ContractError, FloatArray, Ragged, UserError, Validation
from bench.api.early_stopping import TrainingStage
from bench.backbone.cost import StageCost
from bench.backbone.devices import kind_of, training_budget
from bench.progress import Progress, Silent
from bench.store.claims import claimed
from bench.store.decoding import decoded
from bench.store.folders import Entry, Store, digest_arrays, key_of
from bench.training import child
from bench.training.job import ADAPTER, CONFIDENCES, EXAMPLES, REPORT, VALIDATION, Job, Recipe, write_examples

if TYPE_CHECKING:
    from bench.backbone.model import Backbone
    from bench.backbone.room import TrainingPlan

Examples = Mapping[str, Ragged | npt.NDArray[Any]]

VERSION = 2
"""Part of every key; raised when the same job would end in another adapter."""
_LOG_LINES = 30
"""Lines of a failed child's log in the error."""
RANK = re.compile(r"^\[rank\d+\]: ")
"""Prefix that torch puts before each line of a traceback."""
KIND = "adapters"
"""The part of the store."""


@dataclass
class AdapterTrainer:
    """Trains adapters on one backbone for one method: what a run gives to a method as `ctx.train_adapter`."""

    backbone: Backbone
    store: Store
    method: str
    """Name of the method, for messages."""
    verdict_ids: tuple[int, int]
    """Ids of (no, yes) after the self-check query."""
    processes: int | None = None
    """None: one for each GPU of a run on `cuda`, else one."""
    token_budget: int | None = None
    """Tokens of one forward pass of training, roughly; fewer make more passes of one step. None: by the device."""
    checkpoint_every: int = 50
    """Steps."""
    progress: Progress = field(default_factory=Silent)

    def __call__(
        self,
        *,
        loss: str,
        examples: Examples,
        settings: Mapping[str, object],
        validation: Validation | None = None,
    ) -> AdapterRef:
        """See `bench.api.TrainAdapter`."""
        from bench.backbone import adapter

        tested = validation or Validation("", {})
        job = self._job(loss, examples, settings, tested)
        fields = self._fields(job, examples, tested)
        key = key_of(fields)
        entry = self.store.get(KIND, key)
        if entry is None:
            self._plan(job.recipe, examples).check()
            with claimed(self.store.root / "claims" / f"{KIND}-{key}.lock", self._waits):
                entry = self.store.get(KIND, key) or self._trained(key, fields, job, examples, tested)
        return AdapterRef(entry.folder, adapter.fingerprint(entry.folder))

    def _trained(self, key: str, fields: Mapping[str, Any], job: Job, examples: Examples, tested: Validation) -> Entry:
        """The adapter of a training, or of the rest of one that was ended."""
        try:
            folder = self._folder(key).resolve()
            write_examples(folder / EXAMPLES, examples)
            write_examples(folder / VALIDATION, tested.examples)
            config = job.write(folder)
        except OSError as error:
            raise UserError(
                f"What {self.method} is trained on could not be written into the cache: {error.strerror or error}. Free"
                " some disk space, or set CONFBENCH_CACHE to another folder."
            ) from error
        self._run(config, job.recipe)
        trained = folder / ADAPTER
        entry = self.store.put(KIND, key, fields, lambda into: _copy(trained, into), method=self.method)
        shutil.rmtree(folder, ignore_errors=True)
        return entry

    def _waits(self, whom: str) -> None:
        self.progress.say(f"the adapter of {self.method} is being trained by {whom}; waiting for it")

    # --- the job ------------------------------------------------------------------------------------------------------

    def _plan(self, recipe: Recipe, examples: Examples) -> TrainingPlan:
        """The way of training that has room for a pass, which holds at least the longest example."""
        from bench.backbone.room import plan_training

        ids = next(iter(examples.values()))
        longest = int(ids.lengths.max(initial=0)) if isinstance(ids, Ragged) else 0
        tokens = max(self._budget, longest)
        return plan_training(self.backbone, tokens, rank=recipe.rank, named=recipe.target_modules)

    @property
    def _budget(self) -> int:
        return self.token_budget or training_budget(*self.backbone.devices)

    def _job(self, loss: str, examples: Examples, settings: Mapping[str, object], validation: Validation) -> Job:
        recipe = Recipe.of(settings)
        _check_examples(examples)
        if validation.confidence:
            _check_examples(validation.examples)
        plain = dict(settings)
        split = len(self.backbone.devices) > 1  # DeepSpeed knows one card for each process; plain torch does the same
        plain["deepspeed"] = recipe.deepspeed and not split and self._deepspeed_there()
        options = self.backbone.options
        return Job(
            model=asdict(self.backbone.spec) | {"source": _absolute(self.backbone.spec)},
            weights=self.backbone.fingerprint,
            load={
                "device": kind_of(self.backbone.device),
                "dtype": self._dtype(),
                "trust_remote_code": options.trust_remote_code,
                "devices": [str(number) for number in range(len(self.backbone.options.devices))],
            },
            loss=loss,
            settings=plain,
            columns=tuple(examples),
            confidence=validation.confidence,
            validation=tuple(validation.examples),
            targets=tuple(self._targets(recipe)),
            verdict_ids=self.verdict_ids,
            packed=self.backbone.packed,
            token_budget=self._budget,
            checkpoint_every=self.checkpoint_every,
            checkpointing=self._plan(recipe, examples).checkpointing,
            search=tuple(dict.fromkeys(_root(name) for name in (loss, validation.confidence) if name)),
        )

    def _fields(self, job: Job, examples: Examples, validation: Validation) -> dict[str, Any]:
        """Fields that the adapter depends on."""
        read = {"name": job.confidence, "source": _source_digest(job.confidence)} if job.confidence else None
        return {
            "confidence": read,
            "validation": {name: _digest(column) for name, column in validation.examples.items()},
            "weights": job.weights,
            "dtype": job.load["dtype"],
            "device": kind_of(self.backbone.device),
            "attention": self.backbone.attention,
            "loss": {"name": job.loss, "source": _source_digest(job.loss)},
            "settings": dict(job.settings),
            "examples": {name: _digest(column) for name, column in examples.items()},
            "targets": list(job.targets),
            "verdict_ids": list(job.verdict_ids),
            "packed": job.packed,
            "token_budget": job.token_budget,
            **({"checkpointing": True} if job.checkpointing else {}),
            "processes": self._processes,
            "trainer": VERSION,
        }

    def _folder(self, key: str) -> Path:
        """The private folder of a job."""
        folder = self.store.root / "training" / key
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & 0o022):
            raise UserError(
                f"The folder of a training that was begun, training/{key[:12]} in the cache, can be written by others,"
                " so its checkpoints can't be trusted. Remove it."
            )
        return folder

    def _targets(self, recipe: Recipe) -> list[str]:
        from bench.backbone import projections

        try:
            return projections.targets(self.backbone.layers, recipe.target_modules)
        except UserError as error:
            raise UserError(str(error).replace("METHOD.", f"{self.method}.")) from error

    def _dtype(self) -> str:
        name = str(self.backbone.dtype).removeprefix("torch.")
        if name == "float16":
            raise UserError(
                f"{self.method} can't be trained in float16, whose gradients underflow:"
                " use --dtype bfloat16 or float32."
            )
        return name

    def _deepspeed_there(self) -> bool:
        if importlib.util.find_spec("deepspeed") is not None:
            return True
        if sys.platform != "linux":
            return False  # DeepSpeed is for Linux; elsewhere plain torch does the same training
        raise UserError(f"DeepSpeed is not installed. {self._way_out} or install it: pip install deepspeed")

    @property
    def _way_out(self) -> str:
        return f"Train without it: --set {self.method}.deepspeed=false"

    @cached_property
    def _processes(self) -> int:
        if self.processes is not None:
            return self.processes
        if self.backbone.device != "cuda":
            return 1
        import torch

        return max(1, torch.cuda.device_count())

    # --- the child ----------------------------------------------------------------------------------------------------

    def _run(self, config: Path, recipe: Recipe) -> None:
        """Start the child and follow it to its end."""
        last: deque[str] = deque(maxlen=_LOG_LINES)
        if kind_of(self.backbone.device) != "cpu":  # there weights are pages of their files, which the child shares
            self.backbone.release()
        with (
            (config.parent / "train.log").open("a", encoding="utf-8", buffering=1) as log,
            self.progress.stage(f"train {self.method}", recipe.steps, unit="steps") as advance,
            child.started(config, self._processes, self.backbone.devices) as process,
        ):
            done = 0
            for line in process.stdout or ():
                log.write(line)
                told = _told(line)
                if "step" in told:
                    advance(told["step"] - done)
                    done = told["step"]
                elif "note" in told:
                    self.store.notes.append(f"{self.method}: {told['note']}")
                elif line.strip():
                    last.append(RANK.sub("", line.rstrip()))
            code = process.wait()
        if code or not (config.parent / ADAPTER / REPORT).is_file():
            way = f"\n{self._way_out}." if recipe.deepspeed else ""
            raise UserError(
                f"Training the adapter of {self.method} failed ({child.ending(code)}):"
                f" {last[-1] if last else 'it printed nothing'}{way}\nThe end of its log:\n" + "\n".join(last)
            )


def training_cost(ref: AdapterRef) -> StageCost:
    """Token positions that training this adapter fed to the backbone, as recorded then."""
    report = training_report(ref)
    return StageCost(report["forward_tokens"], report["padded_tokens"], report["forward_tokens_floor"])


def training_report(ref: AdapterRef) -> dict[str, Any]:
    """Steps, final loss, seconds, token positions, processes, and whether DeepSpeed trained."""
    return dict(json.loads((ref.folder / REPORT).read_text(encoding="utf-8")))


def training_stage(ref: AdapterRef) -> TrainingStage:
    """Steps, the kept one, and the loss on validation at each point."""
    return decoded(training_report(ref)["stage"], TrainingStage)


def confidences(ref: AdapterRef) -> dict[str, FloatArray]:
    """`validation` `(points, n)`, and `train` `(m,)` for the first m training examples; empty without validation."""
    from safetensors.numpy import load_file

    path = ref.folder / CONFIDENCES
    return load_file(path) if path.is_file() else {}


def _told(line: str) -> dict[str, Any]:
    """Report in a line of the child's log: a `step`, or a `note` for the user; empty for any other line."""
    if not line.startswith(('{"step": ', '{"note": ')):
        return {}
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    kind = int if "step" in told else str
    return told if isinstance(told.get("step", told.get("note")), kind) else {}


def _check_examples(examples: Examples) -> None:
    sizes = {name: len(column) for name, column in examples.items()}
    if not isinstance(next(iter(examples.values()), None), Ragged) or len(set(sizes.values())) != 1:
        raise ContractError(
            f"train_adapter: expected columns of one length, the first a Ragged of token ids; got {sizes or 'none'}"
        )


def _copy(trained: Path, into: Path) -> None:
    for path in sorted(trained.iterdir()):
        shutil.copyfile(path, into / path.name)


def _absolute(spec: Any) -> str:
    return str(Path(spec.source).resolve()) if spec.local else str(spec.source)


def _digest(column: Ragged | npt.NDArray[Any]) -> str:
    arrays = [column.values, column.offsets] if isinstance(column, Ragged) else [column]
    return " ".join([*(f"{array.dtype} {array.shape}" for array in arrays), digest_arrays(arrays)])


def _source_digest(function: str) -> str:
    """Digest of the file that a function is in."""
    return hashlib.sha256(_file(function).read_bytes()).hexdigest()


def _root(function: str) -> str:
    """The folder in which the first part of a function's module name is found."""
    path, module = _file(function), function.partition(":")[0]
    return str(path.parents[module.count(".") + (path.name == "__init__.py")])


def _file(function: str) -> Path:
    module = function.partition(":")[0]
    try:
        return Path(inspect.getfile(importlib.import_module(module))).resolve()
    except (ImportError, TypeError) as error:
        raise ContractError(f"train_adapter: {function!r} is no importable `module:function` ({error})") from error
