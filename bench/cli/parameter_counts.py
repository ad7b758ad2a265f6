"""`bench params`: trained parameters beside the paper's numbers, and device memory.

Both are computed from shapes, without weights.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.api import Adapter, ConfidenceMethod, Format, ModelFacts, RunFacts, UserError
from bench.api.errors import plugin_errors
from bench.model import specs

if TYPE_CHECKING:
    from bench.model.training_memory import Footprint

PUBLISHED = "methods", "parameter_counts.toml"
"""Package of the built-in methods, and the file there with the paper's parameter counts."""
_CONFIGS = "bench.cli", "configs.toml"
READING_TOKENS, TRAINING_TOKENS = 1024, 2048
"""Numbers of tokens in one forward pass for which memory is computed, for reading and for training.

1,024 is the default budget of reading on devices other than CUDA cards; the cards have larger ones. 2,048 is the
default budget of training, except on cards with less than 40 GB.
"""
_LARGE = 100_000_000
"""Smallest number of trained parameters with which a method gets its own line in the memory table."""


@cache
def _read_toml(package: str, name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(package) / name).read_text(encoding="utf-8"))


def config_and_facts(name: str) -> tuple[Any, ModelFacts]:
    """Return a model's configuration, from `configs.toml` or, without one there, its own; and the model's shapes.

    Raises:
        UserError: the model is unknown, or its configuration can't be loaded.
    """
    from bench.model.gguf import read_config
    from bench.model.language_model import LanguageModel, LoadOptions, facts_from_config
    from bench.model.training_memory import config_from_settings

    spec = specs.resolve(name)
    shipped = None if spec.local else _read_toml(*_CONFIGS).get(spec.name)
    if shipped is not None:
        config = config_from_settings(shipped)
    elif specs.is_gguf(name):  # its tokenizer may be one that is unknown here
        config = read_config(spec.name, Path(spec.source))
    else:
        lm = LanguageModel(spec, LoadOptions(device="cpu"))
        return lm.config, lm.facts
    return config, facts_from_config(spec.name, config)


def parameter_records(names: Sequence[str], plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Return numbers of trained parameters: one dict for each model and method (docs/methods.md §6 #48, #49).

    A method whose number depends on the answers' format (choice or open) has one dict for each format.

    Raises:
        UserError: no model was named, or a model can't be used.
    """
    if not names:
        raise UserError("bench params: name at least one model, for example --model llama8b.")
    methods_by_name, paper = registry.methods(plugins), _read_toml(*PUBLISHED)
    methods = [methods_by_name.get(name) for name in methods_by_name.names()]
    records = []
    for model in names:
        paper_counts, (_, facts) = paper["printed"].get(model, {}), config_and_facts(model)
        counts = {cls.name: _by_format(cls, facts) for cls in methods}
        baseline = counts.get(paper["baseline"], {})
        for name, by_format in counts.items():
            one_for_all = len(set(by_format.values())) == 1
            for fmt, count in list(by_format.items())[: 1 if one_for_all else None]:
                label = name if one_for_all else f"{name}:{fmt.value}"
                in_paper = paper_counts.get(label)
                differs = in_paper is not None and in_paper != count
                records.append(
                    {
                        "model": model,
                        "method": label,
                        "parameters": count,
                        f"times {paper['baseline']}": count / baseline[fmt] if baseline.get(fmt) else None,
                        "in the paper": in_paper,
                        "why they differ": paper["why"].get(name, "not known") if differs else "",
                    }
                )
    return records


def _by_format(cls: type[ConfidenceMethod], facts: ModelFacts) -> dict[Format, int]:
    with plugin_errors(f"method {cls.name!r}, n_parameters"):
        return {fmt: int(cls().n_parameters(RunFacts(facts, "", fmt, 0))) for fmt in Format}


def memory_records(names: Sequence[str], plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Return device memory in GB (1e9 bytes): one dict for each model and kind of work.

    Kinds of work are reading, each fit of at least 1e8 parameters, and the training of adapters. Methods whose adapters
    have the same rank and layers share one dict; smaller fits have none.

    Args:
        names: names of models.
        plugins: files with further methods.

    Raises:
        UserError: a model can't be used.
    """
    import torch

    from bench.model import training_memory

    methods_by_name, dtype = registry.methods(plugins), torch.bfloat16
    records = []
    for name in names:
        config, facts = config_and_facts(name)
        reading = training_memory.reading_footprint(config, dtype, READING_TOKENS)
        records.append(_record(name, f"reading, {READING_TOKENS:,} tokens a pass", reading))
        adapters: dict[tuple[int, str], list[str]] = {}
        for cls in map(methods_by_name.get, methods_by_name.names()):
            n_trained = max(_by_format(cls, facts).values())
            if any(getattr(signal, "adapter", None) is Adapter.OWN for signal in cls().reads().predict):
                settings: Any = cls().params()
                adapters.setdefault((settings["rank"], settings["target_modules"]), []).append(cls.name)
            elif n_trained >= _LARGE:
                fit = training_memory.Footprint(
                    reading.weights, 0, reading.rest, training_memory.TRAINED_BYTES * n_trained
                )
                records.append(_record(name, f"fit of {cls.name}", fit))
        for (rank, target_modules), method_names in adapters.items():
            plain, checkpointed = (
                training_memory.training_footprint(
                    config, dtype, TRAINING_TOKENS, rank=rank, named=target_modules, checkpointing=checkpointing
                )
                for checkpointing in (False, True)
            )
            work = f"fit of {', '.join(method_names)}, {TRAINING_TOKENS:,} tokens a pass"
            records.append(_record(name, work, plain, checkpointed))
    return records


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
