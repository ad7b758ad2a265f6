"""The files of a shard in the store: its answers, and one file for each signal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Signal
from bench.prompts.tails import Ids
from bench.store.folders import Entry

if TYPE_CHECKING:
    from bench.backbone.extract import Measured

_ANSWERS = "answers.safetensors"


def write_bundle(folder: Path, measured: Measured, names: Mapping[Signal, str]) -> None:
    """Write answers and signals.

    Args:
        folder: an empty one.
        measured: of a shard.
        names: signal -> its name in keys.
    """
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import save_file

    flat = np.concatenate(measured.answers) if measured.answers else np.zeros(0, dtype=np.int32)
    sizes = np.asarray([0, *(len(a) for a in measured.answers)], dtype=np.int64)
    save_numpy({"values": flat.astype(np.int32), "offsets": np.cumsum(sizes)}, folder / _ANSWERS)
    for signal, name in names.items():
        save_file(measured.columns[signal], folder / _file_name(name), metadata={"signal": name})


def names_in(entry: Entry) -> list[str]:
    """Names of the signals in an entry."""
    names: list[str] = entry.manifest["fields"]["signals"]
    return names


def load_answers(entry: Entry) -> list[Ids]:
    """The ids of each answer of a shard."""
    from safetensors.numpy import load_file

    arrays = load_file(entry.folder / _ANSWERS)
    return np.split(arrays["values"], arrays["offsets"][1:-1])


def load_signal(entries: Sequence[Entry], name: str) -> dict[str, npt.NDArray[Any]]:
    """A signal of a shard, floats as float32 (hidden states lie on disk in the model's dtype).

    Args:
        entries: those of the shard.
        name: of the signal in keys.

    Raises:
        KeyError: none of the entries has it.
    """
    from safetensors.torch import load_file

    for entry in entries:
        if name in names_in(entry):
            arrays = load_file(entry.folder / _file_name(name))
            return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in arrays.items()}
    raise KeyError(name)


def _file_name(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
