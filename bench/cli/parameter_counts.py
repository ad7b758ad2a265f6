"""Number of parameters that each method trains on a model, beside the paper's printed numbers; nothing is loaded."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench import registry
from bench.api import ConfidenceMethod, Format, ModelFacts, RunFacts, UserError
from bench.api.errors import fenced
from bench.backbone import models

PUBLISHED = "methods", "parameter_counts.toml"
"""Package of the built-in methods, and its table of the paper's numbers."""
_CONFIGS = "bench.cli", "configs.toml"


@cache
def _table(package: str, name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(package) / name).read_text(encoding="utf-8"))


def shipped_configuration(name: str) -> dict[str, Any] | None:
    """Settings of the configuration of one of the paper's models, or None."""
    found: dict[str, Any] | None = _table(*_CONFIGS).get(name)
    return found


def facts_of(name: str) -> ModelFacts:
    """Shapes of a model from its configuration: the shipped one of the paper's models, or the model's own.

    Raises:
        UserError: the model is unknown, or its configuration can't be had.
    """
    from bench.backbone.model import Backbone, LoadOptions, facts_from_settings

    shipped = shipped_configuration(name)
    spec = models.resolve(name)
    if shipped is None:
        return Backbone(spec, LoadOptions(device="cpu")).facts
    return facts_from_settings(name, shipped)


def sizes(names: Sequence[str], plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """One record for each model, method and, where the number depends on it, format (docs/methods.md §6 #48, #49).

    Raises:
        UserError: no model was named, or one can't be used.
    """
    if not names:
        raise UserError("bench params: name at least one model, for example --model llama8b.")
    known = registry.methods(plugins)
    methods = {name: known.get(name) for name in known.names()}
    return [record for name in names for record in _of_model(name, facts_of(name), methods)]


def _of_model(model: str, facts: ModelFacts, methods: dict[str, type[ConfidenceMethod]]) -> Iterator[dict[str, Any]]:
    paper = _table(*PUBLISHED)
    printed, why = paper["printed"].get(model, {}), paper["why"]
    counts = {name: _by_format(cls, facts) for name, cls in methods.items()}
    baseline = counts.get(paper["baseline"], {})
    for name, by_format in counts.items():
        one_for_all = len(set(by_format.values())) == 1
        for fmt, count in by_format.items():
            label = name if one_for_all else f"{name}:{fmt.value}"
            in_paper = printed.get(label)
            differs = in_paper is not None and in_paper != count
            yield {
                "model": model,
                "method": label,
                "parameters": count,
                f"times {paper['baseline']}": count / baseline[fmt] if baseline.get(fmt) else None,
                "in the paper": in_paper,
                "why they differ": why.get(name, "not known") if differs else "",
            }
            if one_for_all:
                break


def _by_format(cls: type[ConfidenceMethod], facts: ModelFacts) -> dict[Format, int]:
    with fenced(f"method {cls.name!r}, n_parameters"):
        return {fmt: int(cls().n_parameters(RunFacts(facts, "", fmt, 0))) for fmt in Format}
