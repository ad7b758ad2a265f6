"""Training job as the parent passes it to the child: a JSON configuration and safetensors files with the examples."""

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
"""File with the validation examples, in the same folder."""
REPORT = "training.json"
"""Training report, beside the adapter: steps, final loss, seconds and tokens."""
CONFIDENCES = "confidences.safetensors"
"""Beside the adapter: confidences `validation` `(points, n)`, and `train` `(n,)` of the first n training examples."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters that the trainer reads from a method's settings; the loss function may read others."""

    rank: int
    """Rank of the LoRA matrices."""
    alpha: int
    """LoRA's scale is alpha / rank."""
    dropout: float
    """Dropout on the adapter's input."""
    target_modules: str
    """Last names of the layers to adapt, separated by commas; empty: query and value projections."""
    steps: int
    batch_size: int
    """Examples per batch, over all processes."""
    learning_rate: float
    """Initial learning rate; half a cosine to 0, without warm-up."""
    weight_decay: float
    beta1: float
    beta2: float
    seed: int
    deepspeed: bool
    """Train with DeepSpeed ZeRO stage 2; else the same training in plain torch."""
    clip: float = 0.0
    """Largest L2 norm of a step's gradient over all parameters; 0: no clipping."""
    points: int = POINTS
    """Number of evaluations on validation."""
    published_steps: int = 0
    """Steps of the published training; if more than `steps`, this training may be reported as cut short."""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Select the recipe from a method's settings.

        Raises:
            ContractError: a setting is missing.
        """
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in settings]
        if missing:
            raise ContractError(f"train_adapter: settings lack {', '.join(missing)}")
        values = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        return cls(**values)  # type: ignore[arg-type]  # checked when they are used


@dataclass(frozen=True, kw_only=True)
class Job:
    """One adapter to train."""

    model: Mapping[str, Any]
    """Fields of a `ModelSpec`."""
    weights: str
    """Fingerprint of the model."""
    load: Mapping[str, Any]
    """Fields of `LoadOptions`."""
    loss: str
    """`module:function`."""
    settings: Mapping[str, Any]
    """Settings of the method; see `Recipe`."""
    columns: tuple[str, ...]
    """Columns of the examples; the first is a `Ragged` of token ids, by which examples are grouped."""
    confidence: str
    """`module:function` that computes confidences; empty: no validation, the last step is saved."""
    validation: tuple[str, ...]
    """Columns of the validation examples."""
    targets: tuple[str, ...]
    """Full names of the layers to adapt."""
    verdict_ids: tuple[int, int]
    """Ids of (no, yes)."""
    packed: bool
    """Whether sequences can share their prefixes in one pass."""
    token_budget: int
    """Approximate number of tokens of one forward pass."""
    checkpoint_every: int
    """Steps between checkpoints."""
    checkpointing: bool = False
    """Gradient checkpointing: store only the hidden states between blocks of a pass."""
    search: tuple[str, ...] = ()
    """Folders appended to `sys.path` to import the functions' modules."""

    @property
    def recipe(self) -> Recipe:
        """Hyperparameters that the trainer reads from the settings."""
        return Recipe.of(self.settings)

    def write(self, folder: Path) -> Path:
        """Write the configuration into the job's folder; return its path."""
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
    """Write the columns into a safetensors file."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in examples.items():
        parts = {name: column}
        if isinstance(column, Ragged):
            parts = {f"{name}.values": column.values, f"{name}.offsets": column.offsets}
        arrays |= {part: np.ascontiguousarray(array) for part, array in parts.items()}
    write_atomic(path, save(arrays))


def read_examples(path: Path, columns: tuple[str, ...]) -> dict[str, Column]:
    """Read these columns of a file, in this order."""
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return {
        name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"])
        if f"{name}.offsets" in arrays
        else arrays[name]
        for name in columns
    }


def select_rows(examples: Mapping[str, Column], rows: npt.NDArray[np.int64]) -> dict[str, Column]:
    """Select examples by row number, in this order."""
    return {
        name: column.take(rows) if isinstance(column, Ragged) else column[rows] for name, column in examples.items()
    }
