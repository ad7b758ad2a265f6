"""Judges of whether an open answer is right: normalised match, an OpenAI-compatible server, or a local model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.grading.address import Address, public_model, public_url
from bench.grading.grade import Judge, MatchJudge
from bench.grading.hf import LocalJudge
from bench.grading.openai import MODEL, OpenAIJudge
from bench.model import specs
from bench.model.specs import model_label

KINDS = ("match", "openai", "hf")
_LONGEST_REPEATED = 60
"""Characters of a refused name that are repeated."""
_LONGEST_NAME = 255
"""Characters of a model's name; it stands in results and their captions."""


@dataclass(frozen=True)
class JudgeOptions:
    """Options of a run's judge."""

    kind: str = "match"
    """One of KINDS."""
    model: str | None = None
    """Model that it asks; None: the kind's own."""
    url: str | None = None
    """Base URL of a server; None: the one of OpenAI."""
    device: str | None = None
    """Device of a local model; None: cuda, else mps, else cpu."""
    dtype: str | None = None
    """Dtype of a local model; None: its own on an accelerator, float32 on the CPU."""
    trust_remote_code: bool = False
    """Run Python code that comes with a local model."""

    def __post_init__(self) -> None:
        """Refuse a name that no server and no result could hold.

        Raises:
            UserError: the model's name is empty, very long, or has characters that can't be printed.
        """
        name = self.model
        if name is not None and not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
            raise UserError(
                f"--judge-model: expected a name of 1 to {_LONGEST_NAME} printable characters, got {len(name):,},"
                f" {name[:_LONGEST_REPEATED]!r}; name a model of the judge's."
            )


def open_judge(options: JudgeOptions, cache: Path) -> Judge:
    """The judge that a run asks for; nothing is loaded or called before its first verdict.

    Args:
        options: the judge.
        cache: verdicts are kept below it.

    Raises:
        UserError: an unknown judge, one that lacks what it needs, or an option that it has no use for.
    """
    if options.kind not in KINDS:
        hint = did_you_mean(options.kind, KINDS)
        raise UserError(f"Unknown judge {options.kind!r}: expected one of {', '.join(KINDS)}.{hint}")
    if options.kind != "openai" and options.url is not None:
        raise UserError(f"--judge-url has no use with --judge {options.kind}: leave it out, or say --judge openai.")
    if options.kind == "match":
        if options.model is not None:
            raise UserError("--judge-model has no use with --judge match: leave it out, or say --judge openai or hf.")
        return MatchJudge()
    if options.kind == "openai":
        return OpenAIJudge(Address.of(options.url), options.model or MODEL, cache)
    from bench.model.language_model import LoadOptions

    if not options.model:
        raise UserError("--judge hf: expected a model, got none; name one with --judge-model MODEL.")
    loading = LoadOptions(options.device, options.dtype, options.trust_remote_code)
    return LocalJudge(specs.resolve(options.model), loading, cache)


def public_options(options: JudgeOptions) -> dict[str, str | None]:
    """`judge_model` and `judge_url` as results may show them: without paths, passwords and queries."""
    model, url = options.model, options.url
    if model is not None:
        model = model_label(model) if options.kind == "hf" else public_model(model)
    return {"judge_model": model, "judge_url": None if url is None else public_url(url.strip())}
