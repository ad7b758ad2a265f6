"""The files of a shard in the store: its answers, and one file for each signal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import IntArray, Signal
from bench.prompts.front_coding import Ids
from bench.store.folders import Entry

if TYPE_CHECKING:
    from bench.model.extractor import ShardOutput

_ANSWERS = "answers.safetensors"


def write_bundle(folder: Path, measured: ShardOutput, names: Mapping[Signal, str]) -> None:
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

    arrays = load_file(_file_of(entries, name))
    return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in arrays.items()}


def load_rows(
    bundles: Sequence[Sequence[Entry]], names: Sequence[str], places: IntArray | None = None
) -> dict[str, npt.NDArray[Any]]:
    """A signal of some questions, as `load_signal` gives it: one copy of what is asked for, and beside it one shard.

    Args:
        bundles: the entries of each shard.
        names: of the signal in the keys of each shard.
        places: `(m,)` rows of the joined shards, in the order in which they are wanted; None: all.

    Raises:
        KeyError: a shard has no such signal.
    """
    from safetensors import safe_open

    held, offsets = list(zip(bundles, names, strict=True)), []
    for entries, name in held:  # where each row begins, and where the last one ends; values are not read
        with safe_open(_file_of(entries, name), "numpy") as file:
            if "offsets" in file.keys():  # noqa: SIM118 - it is no mapping
                offsets.append(np.asarray(file.get_tensor("offsets")))
            else:
                offsets.append(np.arange(file.get_slice("values").get_shape()[0] + 1))
    starts = np.cumsum([0, *(len(own) - 1 for own in offsets)])
    places = np.arange(starts[-1]) if places is None else places
    lengths = np.concatenate([np.diff(own) for own in offsets])[places]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    joined: dict[str, npt.NDArray[Any]] = {}
    by_shard = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[by_shard], starts)
    for i, (entries, name) in enumerate(held):
        chosen = by_shard[bounds[i] : bounds[i + 1]]
        if not len(chosen) and i:  # the first one says what arrays there are
            continue
        source, target = _within(offsets[i], places[chosen] - starts[i]), _within(ends, chosen)
        for key, values in load_signal(entries, name).items():
            if key == "offsets":
                joined[key] = ends
                continue
            if key not in joined:
                joined[key] = np.empty((ends[-1], *values.shape[1:]), values.dtype)
            joined[key][target] = values[source]
    return joined


def _within(offsets: IntArray, rows: IntArray) -> IntArray:
    """Places of the values of these rows."""
    lengths = offsets[rows + 1] - offsets[rows]
    before = np.cumsum(lengths) - lengths
    return np.repeat(offsets[rows] - before, lengths) + np.arange(lengths.sum())


def _file_of(entries: Sequence[Entry], name: str) -> Path:
    for entry in entries:
        if name in names_in(entry):
            return entry.folder / _file_name(name)
    raise KeyError(name)


def _file_name(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
