"""Messages from the parent to the child: one JSON file, and one safetensors file with the examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bench.api import POINTS, ContractError, Ragged
from bench.store.files import write_json, write_whole

Column = Ragged | npt.NDArray[Any]

CONFIG, EXAMPLES, ADAPTER, CHECKPOINTS = "config.json", "examples.safetensors", "adapter", "checkpoints"
"""Names in the job's folder."""
VALIDATION = "validation.safetensors"
"""There: examples to choose the step by."""
REPORT = "training.json"
"""Beside the adapter: what training took and where its loss ended."""
CONFIDENCES = "confidences.safetensors"
"""Beside the adapter: `validation` `(points, n)`, and `train` `(n,)` for as many of the training examples."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a method that the trainer reads; the loss function may read others."""

    rank: int
    """Rank of the LoRA matrices."""
    alpha: int
    """LoRA's scale is alpha / rank."""
    dropout: float
    """Dropout on the adapter's input."""
    target_modules: str
    """Last names of the layers to adapt, separated by commas; empty: queries and values, found by the trainer."""
    steps: int
    batch_size: int
    """Examples of a whole batch, over all processes."""
    learning_rate: float
    """Rate at the first step; it follows a half cosine to 0, without warm-up."""
    weight_decay: float
    beta1: float
    beta2: float
    seed: int
    deepspeed: bool
    """ZeRO stage 2; else plain torch does the same training."""
    clip: float = 0.0
    """Longest gradient (L2) of a step, over all parameters; 0: as long as it is."""
    points: int = POINTS
    """Points at which the loss on validation is taken."""
    published_steps: int = 0
    """Steps of the published training; where it is longer than `steps`, this one may turn out to be cut short."""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """The recipe among a method's settings.

        Raises:
            ContractError: a setting is missing.
        """
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in settings]
        if missing:
            raise ContractError(f"train_adapter: settings lack {', '.join(missing)}")
        given = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        return cls(**given)  # type: ignore[arg-type]  # checked by their use


@dataclass(frozen=True, kw_only=True)
class Job:
    """One adapter to train."""

    model: Mapping[str, Any]
    """Fields of a `ModelSpec`."""
    weights: str
    """The model's fingerprint."""
    load: Mapping[str, Any]
    """Fields of `LoadOptions`."""
    loss: str
    """`module:function`."""
    settings: Mapping[str, Any]
    """The method's; see `Recipe`."""
    columns: tuple[str, ...]
    """Names of the examples' columns; the first is a `Ragged` of token ids by which examples are grouped."""
    confidence: str
    """`module:function` that reads confidences off the model; empty: the last step is kept."""
    validation: tuple[str, ...]
    """Names of the validation examples' columns."""
    targets: tuple[str, ...]
    """Full names of the layers to adapt."""
    verdict_ids: tuple[int, int]
    """Ids of (no, yes)."""
    packed: bool
    """Whether sequences can share what they begin with."""
    token_budget: int
    """Tokens of one forward pass, roughly."""
    checkpoint_every: int
    """Steps."""
    checkpointing: bool = False
    """Whether of a pass the states between blocks alone are kept."""
    search: tuple[str, ...] = ()
    """Folders in which the functions' modules are looked for last."""

    @property
    def recipe(self) -> Recipe:
        """Part of the settings that the trainer reads."""
        return Recipe.of(self.settings)

    def write(self, folder: Path) -> Path:
        """Put the configuration into the job's folder; returns its path."""
        path = folder / CONFIG
        write_json(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """The job of a configuration file."""
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return cls(**(given | lists))


def write_examples(path: Path, examples: Mapping[str, Column]) -> None:
    """Write the columns into a file."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in examples.items():
        parts = {name: column}
        if isinstance(column, Ragged):
            parts = {f"{name}.values": column.values, f"{name}.offsets": column.offsets}
        arrays |= {part: np.ascontiguousarray(array) for part, array in parts.items()}
    write_whole(path, save(arrays))


def read_examples(path: Path, columns: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a file, in this order."""
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return {
        name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"])
        if f"{name}.offsets" in arrays
        else arrays[name]
        for name in columns
    }


def take(examples: Mapping[str, Column], rows: npt.NDArray[np.int64]) -> dict[str, Column]:
    """Some of the examples, in the given order."""
    return {
        name: column.take(rows) if isinstance(column, Ragged) else column[rows] for name, column in examples.items()
    }
