"""A training job as the parent passes it to the child: a JSON configuration and safetensors files with the examples."""

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
"""File and folder names in the job's folder."""
VALIDATION = "validation.safetensors"
"""Name of the file with the validation examples, in the job's folder."""
REPORT = "training.json"
"""Name of the file with the training report, in the adapter's folder: steps, final loss, seconds, tokens and more."""
CONFIDENCES = "confidences.safetensors"
"""Name of a file in the adapter's folder: `validation` `(points, n)`, confidences in the n validation examples at each
evaluation, and `train` `(m,)`, those in the first m training examples; m is at most n."""


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
    """Number of evaluations on the validation examples."""
    published_steps: int = 0
    """Steps of the published training; if more than `steps`, this training may be reported as cut short."""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return the recipe that is in a method's settings.

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
    """All that a child process is told in order to train one adapter."""

    model: Mapping[str, Any]
    """The model to load, as fields of a `ModelSpec`."""
    weights: str
    """Fingerprint of the model."""
    load: Mapping[str, Any]
    """How to load the model, as fields of `LoadOptions`."""
    loss: str
    """The loss function, as `module:function`."""
    settings: Mapping[str, Any]
    """Settings of the method, among them the fields of `Recipe`."""
    columns: tuple[str, ...]
    """Names of the examples' columns; the first is a `Ragged` of token ids, by which examples are grouped."""
    confidence: str
    """The function that computes confidences, as `module:function`; empty: no validation, the last step is saved."""
    validation: tuple[str, ...]
    """Names of the validation examples' columns."""
    targets: tuple[str, ...]
    """Full names of the layers to adapt."""
    verdict_ids: tuple[int, int]
    """Token ids of (no, yes) after the self-check query."""
    packed: bool
    """Whether several sequences with shared prefixes are read in one row of a forward pass."""
    token_budget: int
    """Approximate number of tokens of one forward pass."""
    checkpoint_every: int
    """Steps between checkpoints."""
    checkpointing: bool = False
    """Whether to use gradient checkpointing, which stores only the hidden states between blocks."""
    search: tuple[str, ...] = ()
    """Folders appended to `sys.path` to import the functions' modules."""

    @property
    def recipe(self) -> Recipe:
        """Hyperparameters that the trainer takes from the settings."""
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
    """Write examples, column name -> column, into a safetensors file."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in examples.items():
        parts = {name: column}
        if isinstance(column, Ragged):
            parts = {f"{name}.values": column.values, f"{name}.offsets": column.offsets}
        arrays |= {part: np.ascontiguousarray(array) for part, array in parts.items()}
    write_atomic(path, save(arrays))


def read_examples(path: Path, columns: tuple[str, ...]) -> dict[str, Column]:
    """Read these columns of examples from a safetensors file; the result has them in this order."""
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return {
        name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"])
        if f"{name}.offsets" in arrays
        else arrays[name]
        for name in columns
    }


def select_rows(examples: Mapping[str, Column], rows: npt.NDArray[np.int64]) -> dict[str, Column]:
    """Return the examples with these row numbers, in this order."""
    return {
        name: column.take(rows) if isinstance(column, Ragged) else column[rows] for name, column in examples.items()
    }
