"""Memory that the comparison needs on a device, for each kind of its work; nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.api import Adapter, ConfidenceMethod, Format, RunFacts
from bench.api.errors import fenced
from bench.backbone import models
from bench.cli.parameter_counts import facts_of, shipped_configuration

if TYPE_CHECKING:
    from bench.backbone.footprint import Footprint

READING_TOKENS, TRAINING_TOKENS = 1024, 2048
"""Tokens of a pass at the default budgets."""
_LARGE = 100_000_000
"""Trained weights from which on a method's own layer is worth a line."""


def memory(names: Sequence[str], plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """One record for each model and kind of work, in GB (1e9 bytes).

    Args:
        names: models.
        plugins: files with further methods.

    Raises:
        UserError: a model can't be used.
    """
    known = registry.methods(plugins)
    methods = {name: known.get(name) for name in known.names()}
    return [record for name in names for record in _of_model(name, methods)]


def _of_model(name: str, methods: dict[str, type[ConfidenceMethod]]) -> Iterator[dict[str, Any]]:
    import torch

    from bench.backbone import footprint

    config, dtype = _configuration(name), torch.bfloat16
    reading = footprint.reading(config, dtype, READING_TOKENS)
    yield _record(name, f"reading, {READING_TOKENS:,} tokens a pass", reading)
    adapters: dict[tuple[int, str], list[str]] = {}
    facts = facts_of(name)
    for method, cls in methods.items():
        with fenced(f"method {method!r}, n_parameters"):
            trained = max(int(cls().n_parameters(RunFacts(facts, "", fmt, 0))) for fmt in Format)
        if _trains_adapter(cls):
            settings: Any = cls().params()
            adapters.setdefault((settings["rank"], settings["target_modules"]), []).append(method)
        elif trained >= _LARGE:
            fit = footprint.Footprint(reading.weights, 0, reading.rest, footprint.TRAINED_BYTES * trained)
            yield _record(name, f"fit of {method}", fit)
    for (rank, named), trainers in adapters.items():
        plain, less = (
            footprint.training(config, dtype, TRAINING_TOKENS, rank=rank, named=named, checkpointing=checkpointing)
            for checkpointing in (False, True)
        )
        yield _record(name, f"fit of {', '.join(trainers)}, {TRAINING_TOKENS:,} tokens a pass", plain, less)


def _configuration(name: str) -> Any:
    from bench.backbone.footprint import configuration
    from bench.backbone.model import Backbone, LoadOptions

    shipped = shipped_configuration(name)
    return (
        Backbone(models.resolve(name), LoadOptions(device="cpu")).config if shipped is None else configuration(shipped)
    )


def _trains_adapter(cls: type[ConfidenceMethod]) -> bool:
    return any(getattr(signal, "adapter", None) is Adapter.OWN for signal in cls().reads().predict)


def _record(model: str, work: str, needed: Footprint, checkpointed: Footprint | None = None) -> dict[str, Any]:
    return {
        "model": model,
        "work": work,
        "weights": needed.weights / 1e9,
        "blocks": needed.blocks / 1e9,
        "rest": needed.rest / 1e9,
        "trained": needed.trained / 1e9,
        "GB": needed.total / 1e9,
        "checkpointed": None if checkpointed is None else checkpointed.total / 1e9,
    }
