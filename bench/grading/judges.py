"""Who says whether an open answer is right: normalised match, an OpenAI-compatible server, or a local model."""

from __future__ import annotations

from pathlib import Path

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.backbone import models
from bench.grading.address import Address, public_model, public_url
from bench.grading.grade import Judge, Match
from bench.grading.hf import Local
from bench.grading.openai import MODEL, OpenAI
from bench.results.files import model_label
from bench.run.config import RunConfig

KINDS = ("match", "openai", "hf")


def open_judge(config: RunConfig, cache: Path) -> Judge:
    """The judge that a run asks for; nothing is loaded or called before its first verdict.

    Args:
        config: `judge`, `judge_model`, `judge_url`, and `device`, `dtype` for a local model.
        cache: verdicts are kept below it.

    Raises:
        UserError: an unknown judge, one that lacks what it needs, or an option that it has no use for.
    """
    if config.judge not in KINDS:
        hint = did_you_mean(config.judge, KINDS)
        raise UserError(f"Unknown judge {config.judge!r}: expected one of {', '.join(KINDS)}.{hint}")
    if config.judge != "openai" and config.judge_url is not None:
        raise UserError(f"--judge-url has no use with --judge {config.judge}: leave it out, or say --judge openai.")
    if config.judge == "match":
        if config.judge_model is not None:
            raise UserError("--judge-model has no use with --judge match: leave it out, or say --judge openai or hf.")
        return Match()
    if config.judge == "openai":
        return OpenAI(Address.of(config.judge_url), config.judge_model or MODEL, cache)
    return _local(config, cache)


def _local(config: RunConfig, cache: Path) -> Local:
    from bench.backbone.model import LoadOptions

    if not config.judge_model:
        raise UserError("--judge hf: expected a model, got none; name one with --judge-model MODEL.")
    options = LoadOptions(config.device, config.dtype, config.trust_remote_code)
    return Local(models.resolve(config.judge_model), options, cache)


def public_options(config: RunConfig) -> dict[str, str | None]:
    """`judge_model` and `judge_url` as results may show them: without paths, passwords and queries."""
    model, url = config.judge_model, config.judge_url
    if model is not None:
        model = model_label(model) if config.judge == "hf" else public_model(model)
    return {"judge_model": model, "judge_url": None if url is None else public_url(url.strip())}
