"""Write and read what a head has learned: its method, its adapter, and its maps from method output to confidences."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import ConfidenceMethod, FloatArray, UserError
from bench.api.errors import plugin_errors, reason_of
from bench.metrics.recalibration import Recalibrator, create_recalibrator
from bench.metrics.scaling import Scale
from bench.registry import Registry
from bench.run.plan import trained_adapter
from bench.run.scorers.card import ADAPTER, METHOD, OUTPUT, Card, MethodCard
from bench.store.files import write_json
from bench.store.sources import plugin_digest

_FITTED = "fitted.json"
_PLACEHOLDER = "adapter"
"""Text in place of the adapter's path in a head's file of fitted attributes, since the head's folder may be moved."""


@dataclass(frozen=True)
class OutputMaps:
    """Maps from a method's output, scores or confidences, to the confidences of a head."""

    empty: float
    """Confidence in an answer without text."""
    scale: Scale | None
    """Map from scores to confidences, applied first; None if the method outputs confidences."""
    recalibrator: Recalibrator | None
    """Map that recalibrates confidences, applied last; None if they are not recalibrated."""

    def confidence(self, values: FloatArray) -> FloatArray:
        """Map a method's output `(n,)` to confidences `(n,)`."""
        if self.scale is not None:
            values = self.scale.apply(values)
        return values if self.recalibrator is None else self.recalibrator.apply(values)


# --- the method -------------------------------------------------------------------------------------------------------


def plain_constants(method: ConfidenceMethod) -> dict[str, Any]:
    """Return a method's constants as JSON values.

    Raises:
        UserError: a constant changes if it is written as JSON and read again.
    """
    constants = {}
    for name, value in method.params().items():
        plain = list(value) if isinstance(value, tuple) else value
        if json.loads(json.dumps(plain, default=str)) != plain:
            raise UserError(f"its constant {name} is a {type(value).__name__}, which no head keeps")
        constants[name] = plain
    return constants


def write_method(method: ConfidenceMethod, folder: Path) -> bool:
    """Write a fitted method and its adapter, if any, into a head; return whether there is an adapter.

    Raises:
        Exception: any exception that the `save` of a plugin raises.
    """
    method.save(folder / METHOD)
    if (ref := trained_adapter(method)) is None:
        return False
    shutil.copytree(ref.folder, folder / ADAPTER, ignore=lambda _, names: [n for n in names if n == "manifest.json"])
    _replace_adapter_path(folder / METHOD / _FITTED, str(ref.folder), _PLACEHOLDER)
    return True


def read_method(folder: Path, card: MethodCard, methods: Registry[ConfidenceMethod], files: Mapping[str, str]) -> Any:
    """Load the fitted method of a head.

    Args:
        folder: folder of the head.
        card: description of the method in the head's card.
        methods: all methods that are known here.
        files: name of a method -> plugin file that defines the method.

    Raises:
        UserError: the method is unknown, its source code differs from that in the card, or its `load` fails.
    """
    if card.name not in methods.names():
        where = (
            f"it came from the file {card.plugin}: give it with --plugin FILE"
            if card.plugin.endswith(".py")
            else f"it came from {card.plugin}: install that"
        )
        raise UserError(f"--head {folder}: its method {card.name!r} is not here; {where}.")
    plugin = methods.get(card.name)
    code = str(plugin_digest(plugin))
    if code != card.code:
        here = f" in {Path(files[card.name]).name}" if card.name in files else ""
        raise UserError(
            f"--head {folder}: it was made with another version of method {card.name!r} (source {card.code[:12]}, of"
            f" confbench {card.version}; here{here} {code[:12]}), whose confidences may differ. Use the version that"
            " made it, or make it again with bench run --save-heads."
        )
    with plugin_errors(f"--head {folder}: method {card.name!r} can't be made with the head's constants"):
        method = plugin(**{key: tuple(v) if isinstance(v, list) else v for key, v in card.constants.items()})
    if not card.trains:
        return method
    try:
        if not card.adapter:
            return method.load(folder / METHOD)
        with tempfile.TemporaryDirectory() as made:  # a copy, with the path that the adapter has here
            there = Path(shutil.copytree(folder / METHOD, Path(made) / METHOD))
            _replace_adapter_path(there / _FITTED, _PLACEHOLDER, str((folder / ADAPTER).resolve()))
            return method.load(there)
    except Exception as error:
        raise UserError(
            f"--head {folder}: method {card.name!r} can't read what it learned ({reason_of(error)}); use the versions"
            " of packages that made it, or make it again with bench run --save-heads."
        ) from error


def _replace_adapter_path(path: Path, old: str, new: str) -> None:
    """Replace the adapter's path `old` by `new` in a file of fitted attributes.

    Raises:
        UserError: the path in the file is not `old`.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    ref = values["adapter_"]
    if ref["adapter"] != old:
        raise UserError("its adapter is not where it says")
    write_json(path, {**values, "adapter_": {**ref, "adapter": new}})


# --- its output -------------------------------------------------------------------------------------------------------


def write_output(output: OutputMaps, folder: Path) -> None:
    """Write the arrays of the map from scores to confidences, and those of the recalibrator, into a head."""
    from safetensors.numpy import save_file

    arrays = {}
    if output.scale is not None:
        arrays["scale.labelled"] = np.asarray(output.scale.labelled, dtype=np.float64)
        arrays["scale.line"] = np.asarray([output.scale.slope, output.scale.level], dtype=np.float64)
    if output.recalibrator is not None:
        state = vars(output.recalibrator).items()
        arrays |= {f"recalibration.{name}": np.asarray(value, dtype=np.float64) for name, value in state}
    save_file(arrays, folder / OUTPUT)


def read_output(folder: Path, card: Card) -> OutputMaps:
    """Read the maps from a method's output to confidences, which `write_output` wrote into a head.

    Raises:
        UserError: the file is missing or damaged, or lacks an array.
    """
    from safetensors.numpy import load_file

    try:
        arrays = load_file(folder / OUTPUT)
        scale = None
        if card.output.scale:
            slope, level = map(float, arrays["scale.line"])
            scale = Scale(arrays["scale.labelled"], slope, level)
        fitted = None
        if card.method.recalibration is not None:
            fitted = create_recalibrator(card.method.recalibration)
            declared = (name for base in type(fitted).__mro__ for name in vars(base).get("__annotations__", ()))
            for name in (name for name in declared if name.endswith("_")):  # fitted attributes
                array = arrays[f"recalibration.{name}"]
                setattr(fitted, name, array if array.ndim else float(array))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--head {folder}: {OUTPUT} can't be used ({reason_of(error)}); copy it again.") from error
    return OutputMaps(card.output.empty, scale, fitted)
