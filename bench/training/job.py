"""A training job as the parent passes it to the child: a JSON configuration, and examples as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bench.api import POINTS, ContractError, Ragged
from bench.store.files import write_atomic, write_json

Column = Ragged | npt.NDArray[Any]

CONFIG, EXAMPLES, ADAPTER, CHECKPOINTS = "config.json", "examples.safetensors", "adapter", "checkpoints"
"""Names of files and folders in the folder of a training job."""
VALIDATION = "validation.safetensors"
"""Name of the file with the validation examples, in the job's folder."""
REPORT = "training.json"
"""Name of the file with the training report, in the adapter's folder: steps, final loss, seconds, tokens and more."""
CONFIDENCES = "confidences.safetensors"
"""Name of the file with the recorded confidences, in the adapter's folder.

The tensor `validation` `(points, n)` has the confidences in n validation examples at each evaluation. The tensor
`train` `(m,)` has the kept adapter's confidences in the training examples `np.arange(m) * N // m` of N; m is at most n.
"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters that the trainer takes from a method's settings; the loss function may take further ones."""

    rank: int
    """Rank of the LoRA matrices."""
    alpha: int
    """LoRA's scale is alpha / rank."""
    dropout: float
    """Dropout on the adapter's input."""
    target_modules: str
    """Last parts of the names of the layers to adapt, separated by commas; empty: query and value projections."""
    steps: int
    batch_size: int
    """Number of examples in a batch, over all processes."""
    learning_rate: float
    """Initial learning rate, which falls to 0 along half a cosine, without warm-up."""
    weight_decay: float
    beta1: float
    beta2: float
    seed: int
    deepspeed: bool
    """Whether to train with DeepSpeed ZeRO stage 2; else the same training runs in plain torch."""
    clip: float = 0.0
    """L2 norm over all parameters to which a step's gradient is clipped; 0: no clipping."""
    points: int = POINTS
    """Largest number of evaluations on the validation examples; a training that stops early has fewer."""
    published_steps: int = 0
    """Steps of the published training; if more than `steps`, this training may be reported as cut short."""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return the recipe with the values that a method's settings have.

        Raises:
            ContractError: the settings lack a field of the recipe.
        """
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in settings]
        if missing:
            raise ContractError(f"train_adapter: settings lack {', '.join(missing)}")
        values = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        return cls(**values)  # type: ignore[arg-type]  # checked when they are used


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a child process needs to know to train one adapter."""

    model: Mapping[str, Any]
    """The model to load, as fields of a `ModelSpec`."""
    weights: str
    """Fingerprint of the model's files; the adapter can be applied only to a model with this fingerprint."""
    load: Mapping[str, Any]
    """Options for loading the model, as fields of `LoadOptions`."""
    loss: str
    """Import path of the loss function, as `module:function`."""
    settings: Mapping[str, Any]
    """Settings of the method, among them the fields of `Recipe`."""
    columns: tuple[str, ...]
    """Names of the examples' columns. The first column holds token ids (`Ragged`).

    If `packed` is true, examples whose token ids begin alike are read in one forward pass where `token_budget` allows
    it. Otherwise each example is read alone.
    """
    confidence: str
    """Import path of the function that computes confidences, as `module:function`.

    Without such a function the string is empty, there is no validation, and the adapter of the last step is saved.
    """
    validation: tuple[str, ...]
    """Names of the validation examples' columns."""
    targets: tuple[str, ...]
    """Full names in the model of the linear layers that LoRA adapts."""
    verdict_ids: tuple[int, int]
    """Token ids of (no, yes) after the self-check query."""
    packed: bool
    """Whether several sequences with shared prefixes are read as one row of tokens in a forward pass."""
    token_budget: int
    """Approximate number of tokens of one forward pass."""
    checkpoint_every: int
    """Number of steps from one checkpoint to the next."""
    checkpointing: bool = False
    """Whether to use gradient checkpointing, which stores only the hidden states between blocks."""
    search: tuple[str, ...] = ()
    """Folders that the child appends to `sys.path`, so that it can import `loss` and `confidence`."""
    plugins: tuple[str, ...] = ()
    """Plugin files with `loss` or `confidence`. The child executes them, since no import finds a file's module."""

    @property
    def recipe(self) -> Recipe:
        """Hyperparameters of the trainer, taken from `settings`."""
        return Recipe.of(self.settings)

    def write(self, folder: Path) -> Path:
        """Write the job as a configuration file into this folder; return the file's path."""
        path = folder / CONFIG
        write_json(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the job from a configuration file."""
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**(values | tuples))


def write_examples(path: Path, examples: Mapping[str, Column]) -> None:
    """Write examples, given as columns by name, into a safetensors file."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in examples.items():
        parts = {name: column}
        if isinstance(column, Ragged):
            parts = {f"{name}.values": column.values, f"{name}.offsets": column.offsets}
        arrays |= {part: np.ascontiguousarray(array) for part, array in parts.items()}
    write_atomic(path, save(arrays))


def read_examples(path: Path, columns: tuple[str, ...]) -> dict[str, Column]:
    """Read columns of examples from a safetensors file, in the order of `columns`."""
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return {
        name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"])
        if f"{name}.offsets" in arrays
        else arrays[name]
        for name in columns
    }


def select_rows(examples: Mapping[str, Column], rows: npt.NDArray[np.int64]) -> dict[str, Column]:
    """Return the examples with the indices `rows`, in this order."""
    return {
        name: column.take(rows) if isinstance(column, Ragged) else column[rows] for name, column in examples.items()
    }
