"""Identity of all that a head belongs to: the backbone by its files, the method by its source."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.backbone.models import model_label
from bench.run.heads.card import BackboneCard
from bench.store.folders import digest_file

if TYPE_CHECKING:
    from bench.backbone.model import Backbone

_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json")
_DIGITS = 16
"""Hex digits of a fingerprint that are shown."""


def card_of(backbone: Backbone, model: str) -> BackboneCard:
    """The backbone as a head names it; `model`: as it was named on the command line."""
    tokenizer = hashlib.sha256()
    for name in _TOKENIZER:
        path = backbone.folder / name
        if path.is_file():
            tokenizer.update(f"{name} {digest_file(path)}\n".encode())
    template = backbone.chat.template or backbone.chat.tokenizer.chat_template
    return BackboneCard(
        model=model_label(model),
        revision=backbone.files.commit,
        fingerprint=backbone.fingerprint,
        weights=backbone.files.weights,
        tokenizer=tokenizer.hexdigest(),
        chat_template=hashlib.sha256(str(template).encode("utf-8", "surrogatepass")).hexdigest(),
        dtype=backbone.dtype_name,
        attention=backbone.attention,
        trust_remote_code=backbone.options.trust_remote_code,
    )


def differences(own: BackboneCard, other: BackboneCard) -> list[str]:
    """Parts in which two backbones differ, in words; empty where they are the same."""
    if own.fingerprint == other.fingerprint:
        return []
    parts = [
        name.replace("_", " ")
        for name in ("weights", "tokenizer", "chat_template")
        if getattr(own, name) != getattr(other, name)
    ]
    return parts or ["other files that change what is asked or answered"]


def require_same(own: BackboneCard, other: BackboneCard, folder: Path) -> None:
    """Check that a backbone is the head's own.

    Raises:
        UserError: it is another one; names both.
    """
    parts = differences(own, other)
    if parts:
        raise UserError(
            f"--model {other.model}: the head in {folder} belongs to {own.model!r}, fingerprint"
            f" {short(own.fingerprint)}, not to {other.model!r}, fingerprint {short(other.fingerprint)}; other:"
            f" {', '.join(parts)}. Name its own model, or make a head for this one with bench run --save-heads."
            " How far this model's states are from the head's says bench head check."
        )


def short(fingerprint: str) -> str:
    """A fingerprint as messages show it: a Hub id with the beginning of its commit, or the beginning of a digest."""
    name, at, commit = fingerprint.rpartition("@")
    return f"{name}{at}{commit[:_DIGITS]}"
