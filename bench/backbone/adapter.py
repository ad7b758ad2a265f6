"""Switching a trained adapter on in a backbone, and off again; the frozen weights are never touched."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bench.api import AdapterRef, UserError
from bench.backbone.folder import first_line
from bench.backbone.model import Backbone
from bench.store.files import write_json

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
"""Names that peft gives the files."""
_BASE = "base_model.json"
"""Beside them: on which weights the adapter was trained."""


def record_base(folder: Path, weights: str, name: str) -> None:
    """Write down which weights an adapter belongs to: a backbone's fingerprint, and its name for messages."""
    write_json(folder / _BASE, {"fingerprint": weights, "name": name})


def fingerprint(folder: Path) -> str:
    """SHA-256 over an adapter's weights and configuration, and what it was trained on."""
    digest = hashlib.sha256()
    for name in (WEIGHTS, SETTINGS, _BASE):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


@contextmanager
def adapted(backbone: Backbone, ref: AdapterRef) -> Iterator[Backbone]:
    """Within the context, everything that is read from this backbone is read through the adapter, without dropout.

    The backbone has a cache of its own meanwhile, so keys and values of the two kinds of weights never meet; the one of
    the frozen weights is back afterwards, as it was. Answers are the frozen model's: none is generated in here.

    Raises:
        UserError: the adapter is incomplete, or not the one that was trained, or belongs to another model.
    """
    _check(backbone, ref)
    frozen_session = backbone.session
    wrapped = _attach(backbone.model, ref.folder)
    try:
        del backbone.session  # a cached property: the next use makes a new one
        yield backbone
    finally:
        wrapped.unload()  # puts the original layers back
        backbone.session = frozen_session


def _attach(model: Any, folder: Path) -> Any:
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers under a name that is going away
        try:
            wrapped = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=False)
        except (ValueError, TypeError, RuntimeError, KeyError, OSError, SafetensorError) as error:
            _strip(model)  # its layers are already in when its weights turn out not to fit
            raise UserError(f"The adapter in {folder.name[:12]} can't be loaded: {first_line(error)}") from error
    wrapped.eval()
    return wrapped


def _strip(model: Any) -> None:
    """Put the original layers back."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, BaseTunerLayer):
                setattr(module, name, child.get_base_layer())


def _check(backbone: Backbone, ref: AdapterRef) -> None:
    folder = ref.folder
    missing = [name for name in (WEIGHTS, SETTINGS, _BASE) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"Expected an adapter with {WEIGHTS}, {SETTINGS} and {_BASE} in folder {folder.name[:12]!r}; missing:"
            f" {', '.join(missing)}. Fit the method again."
        )
    if fingerprint(folder) != ref.fingerprint:
        raise UserError(
            f"The adapter in folder {folder.name[:12]!r} is not as it was trained: a file of it was altered. Run the"
            " command again: it is trained again."
        )
    base = json.loads((folder / _BASE).read_text(encoding="utf-8"))
    if base.get("fingerprint") != backbone.fingerprint:
        raise UserError(
            f"The adapter in folder {folder.name[:12]!r} was trained on model {base.get('name')!r}"
            f" ({str(base.get('fingerprint'))[:12]}), not on {backbone.spec.name!r} ({backbone.fingerprint[:12]}):"
            " an adapter fits its own weights only. Fit the method on this model."
        )
