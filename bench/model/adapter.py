"""LoRA adapters: add a new adapter to a model for training, or apply a trained one to a frozen model in a context."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from bench.api import AdapterRef, UserError
from bench.api.errors import first_line
from bench.store.files import write_json

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
"""File names that peft gives an adapter's weights and its configuration."""
_BASE = "base_model.json"
"""File in an adapter's folder that records the name and fingerprint of the model on which the adapter was trained."""


def with_lora(model: Any, targets: Sequence[str], *, rank: int, alpha: int = 8, dropout: float = 0.1) -> Any:
    """Return a model wrapped with a new LoRA adapter on the layers named `targets`.

    The new adapter does not change the model's results yet: its matrix B is 0.

    Dropout is on in the adapter's layers and off in the rest of the model.
    """
    import peft
    from transformers.pytorch_utils import Conv1D

    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, bias="none", target_modules=list(targets),
        fan_in_fan_out=isinstance(model.get_submodule(targets[0]), Conv1D), task_type="CAUSAL_LM",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        wrapped = peft.get_peft_model(model, config)
    wrapped.eval()
    set_dropout(wrapped, on=True)
    return wrapped


def set_dropout(wrapped: Any, *, on: bool) -> None:
    """Switch the dropout of a model's LoRA adapter on or off; `wrapped` is the peft model."""
    for name, module in wrapped.named_modules():
        if "lora_dropout" in name:
            module.train(on)


def record_base(folder: Path, weights: str, name: str) -> None:
    """Write into an adapter's folder the fingerprint `weights` and the name of the model on which it was trained.

    If the adapter is later applied to another model, the error message shows the name.
    """
    write_json(folder / _BASE, {"fingerprint": weights, "name": name})


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of an adapter's three files: weights, configuration, and record of the base model."""
    digest = hashlib.sha256()
    for name in (WEIGHTS, SETTINGS, _BASE):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


@contextmanager
def apply_adapter(lm: LanguageModel, ref: AdapterRef) -> Iterator[LanguageModel]:
    """Apply a trained adapter to the model within the context, without dropout.

    Within the context the model has a separate KV cache; afterwards it has its earlier one again. Generate no answers
    within the context: all answers must come from the frozen model.

    Raises:
        UserError: the adapter is incomplete, was altered after training, belongs to another model, or can't be loaded.
    """
    import peft
    from peft.tuners.tuners_utils import BaseTunerLayer

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
    if base.get("fingerprint") != lm.fingerprint:
        raise UserError(
            f"The adapter in folder {folder.name[:12]!r} was trained on model {base.get('name')!r}"
            f" ({str(base.get('fingerprint'))[:12]}), not on {lm.spec.name!r} ({lm.fingerprint[:12]}):"
            " an adapter fits its own weights only. Fit the method on this model."
        )
    frozen_session, model = lm.session, lm.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        try:
            wrapped = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=False)
        except (ValueError, TypeError, RuntimeError, KeyError, OSError, SafetensorError) as error:
            # peft inserts its layers before it finds that the weights don't fit: restore the original layers
            for module in list(model.modules()):
                for name, child in list(module.named_children()):
                    if isinstance(child, BaseTunerLayer):
                        setattr(module, name, child.get_base_layer())
            raise UserError(f"The adapter in {folder.name[:12]} can't be loaded: {first_line(error)}") from error
    wrapped.eval()
    try:
        del lm.session  # a cached property: the next access makes a new session
        yield lm
    finally:
        wrapped.unload()  # puts the original layers back
        lm.session = frozen_session
