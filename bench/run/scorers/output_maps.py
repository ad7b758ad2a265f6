"""Learned parts of a head: the method's own files, its adapter, and the maps that its numbers go through."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import AdapterRef, ConfidenceMethod, FloatArray, UserError
from bench.api.errors import fenced, reason_of
from bench.metrics.recalibration import Recalibrator, recalibrator
from bench.metrics.scaling import Scale
from bench.registry import Registry
from bench.run.scorers.card import ADAPTER, METHOD, OUTPUT, Card, MethodCard
from bench.store.files import write_json
from bench.store.sources import plugin_digest

_FITTED = "fitted.json"
_HERE = "adapter"
"""Stands for the folder of the adapter where it is in the head."""


@dataclass(frozen=True)
class Output:
    """Maps that a method's numbers go through."""

    empty: float
    """Confidence in an answer without text."""
    scale: Scale | None
    recalibrator: Recalibrator | None

    def confidence(self, values: FloatArray) -> FloatArray:
        """Confidences `(n,)` of what a method gives `(n,)`."""
        if self.scale is not None:
            values = self.scale.apply(values)
        return values if self.recalibrator is None else self.recalibrator.apply(values)


# --- the method -------------------------------------------------------------------------------------------------------


def plain_constants(method: ConfidenceMethod) -> dict[str, Any]:
    """Constants as JSON has them.

    Raises:
        UserError: one of them can't be written so that it comes back.
    """
    found = {}
    for name, value in method.params().items():
        kept = list(value) if isinstance(value, tuple) else value
        if json.loads(json.dumps(kept, default=str)) != kept:
            raise UserError(f"its constant {name} is a {type(value).__name__}, which no head keeps")
        found[name] = kept
    return found


def write_method(method: ConfidenceMethod, folder: Path) -> bool:
    """Write what a method learned; returns whether there is an adapter.

    Raises:
        Exception: whatever a plugin's own `save` raises.
    """
    method.save(folder / METHOD)
    ref = method.fitted().get("adapter_")
    if not isinstance(ref, AdapterRef):
        return False
    shutil.copytree(ref.folder, folder / ADAPTER, ignore=lambda _, names: [n for n in names if n == "manifest.json"])
    _point(folder / METHOD / _FITTED, str(ref.folder), _HERE)
    return True


def read_method(folder: Path, card: MethodCard, known: Registry[ConfidenceMethod], files: Mapping[str, str]) -> Any:
    """The method, as it was when the head was made.

    Args:
        folder: of the head.
        card: its method.
        known: all methods.
        files: method -> file of `--plugin` that it came from.

    Raises:
        UserError: there is no such method here, it is of another version, or it can't read what it learned.
    """
    if card.name not in known.names():
        where = (
            f"it came from the file {card.plugin}: give it with --plugin FILE"
            if card.plugin.endswith(".py")
            else f"it came from {card.plugin}: install that"
        )
        raise UserError(f"--head {folder}: its method {card.name!r} is not here; {where}.")
    plugin = known.get(card.name)
    code = str(plugin_digest(plugin))
    if code != card.code:
        here = f" in {Path(files[card.name]).name}" if card.name in files else ""
        raise UserError(
            f"--head {folder}: it was made with another version of method {card.name!r} (source {card.code[:12]}, of"
            f" confbench {card.version}; here{here} {code[:12]}), whose confidences may differ. Use the version that"
            " made it, or make it again with bench run --save-heads."
        )
    with fenced(f"--head {folder}: method {card.name!r} can't be made with the head's constants"):
        method = plugin(**{key: tuple(v) if isinstance(v, list) else v for key, v in card.constants.items()})
    if not card.trains:
        return method
    try:
        if not card.adapter:
            return method.load(folder / METHOD)
        with tempfile.TemporaryDirectory() as made:  # the path of the adapter is where the head is now
            there = Path(shutil.copytree(folder / METHOD, Path(made) / METHOD))
            _point(there / _FITTED, _HERE, str((folder / ADAPTER).resolve()))
            return method.load(there)
    except Exception as error:
        raise UserError(
            f"--head {folder}: method {card.name!r} can't read what it learned ({reason_of(error)}); use the versions"
            " of packages that made it, or make it again with bench run --save-heads."
        ) from error


def _point(path: Path, old: str, new: str) -> None:
    """Replace the adapter's folder in a file of fitted attributes."""
    values = json.loads(path.read_text(encoding="utf-8"))
    ref = values["adapter_"]
    if ref["adapter"] != old:
        raise UserError("its adapter is not where it says")
    write_json(path, {**values, "adapter_": {**ref, "adapter": new}})


# --- its output -------------------------------------------------------------------------------------------------------


def write_output(output: Output, folder: Path) -> None:
    """Write scale and recalibration, where there are any."""
    from safetensors.numpy import save_file

    arrays = {}
    if output.scale is not None:
        arrays["scale.labelled"] = np.asarray(output.scale.labelled, dtype=np.float64)
        arrays["scale.line"] = np.asarray([output.scale.slope, output.scale.level], dtype=np.float64)
    if output.recalibrator is not None:
        state = {name: value for name, value in vars(output.recalibrator).items() if name.endswith("_")}
        arrays |= {f"recalibration.{name}": np.asarray(value, dtype=np.float64) for name, value in state.items()}
    save_file(arrays, folder / OUTPUT)


def read_output(folder: Path, card: Card) -> Output:
    """Maps that `write_output` wrote.

    Raises:
        UserError: the file lacks something.
    """
    from safetensors.numpy import load_file

    try:
        arrays = load_file(folder / OUTPUT)
        scale = None
        if card.output.scale:
            slope, level = map(float, arrays["scale.line"])
            scale = Scale(arrays["scale.labelled"], slope, level)
        made = None
        if card.method.recalibration is not None:
            made = recalibrator(card.method.recalibration)
            declared = (name for base in type(made).__mro__ for name in vars(base).get("__annotations__", ()))
            for name in (name for name in declared if name.endswith("_")):  # what it learned
                found = arrays[f"recalibration.{name}"]
                setattr(made, name, found if found.ndim else float(found))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--head {folder}: {OUTPUT} can't be used ({reason_of(error)}); copy it again.") from error
    return Output(card.output.empty, scale, made)
