"""Creation of a run's judge of open answers: normalised match, an OpenAI-compatible server, or a local model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.grading.grade import Judge, MatchJudge
from bench.grading.hf import LocalJudge
from bench.grading.openai import MODEL, OpenAIJudge
from bench.model import specs
from bench.model.specs import model_label, public_model
from bench.servers.address import Address, public_url

KINDS = ("match", "openai", "hf")
_MAX_SHOWN_LENGTH = 60
"""Largest length in characters to which a message shows a model name that was refused."""
_MAX_NAME_LENGTH = 255
"""Largest length in characters of a model's name, since results and captions show it."""


@dataclass(frozen=True)
class JudgeOptions:
    """Options that select a run's judge."""

    kind: str = "match"
    """Kind of judge, one of `KINDS`: normalised match, a server, or a local model."""
    model: str | None = None
    """Model that judges; None for the default of the judge's kind."""
    url: str | None = None
    """Base URL of the server; None for OpenAI."""
    device: str | None = None
    """Device of a local model: cuda, mps or cpu; None for cuda if there is one, else cpu."""
    dtype: str | None = None
    """Dtype of a local model. None: as for the run's model (`LoadOptions.dtype`)."""
    trust_remote_code: bool = False
    """Whether Python code of a local model is run."""

    def __post_init__(self) -> None:
        """Check the model's name.

        Raises:
            UserError: the name is empty, too long, or has unprintable characters.
        """
        name = self.model
        if name is not None and not (name.strip() and name.isprintable() and len(name) <= _MAX_NAME_LENGTH):
            raise UserError(
                f"--judge-model: expected a name of 1 to {_MAX_NAME_LENGTH} printable characters, got {len(name):,},"
                f" {name[:_MAX_SHOWN_LENGTH]!r}; name a model of the judge's."
            )


def open_judge(options: JudgeOptions, cache: Path) -> Judge:
    """Create the judge of a run; no model is loaded and no server called before its first verdict.

    Args:
        options: options of the judge.
        cache: the cache folder, for verdicts.

    Raises:
        UserError: the kind of judge is unknown, needs an option that is missing, or has no use for one that is given;
            the URL or the name of a local model is invalid; or `OpenAIJudge` raises an error.
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
    load_options = LoadOptions(options.device, options.dtype, options.trust_remote_code, cache=str(cache))
    return LocalJudge(specs.resolve(options.model), load_options, cache)


def public_options(options: JudgeOptions) -> dict[str, str | None]:
    """Return `judge_model` and `judge_url` as results may show them: without paths, passwords and queries."""
    model, url = options.model, options.url
    if model is not None:
        model = model_label(model) if options.kind == "hf" else public_model(model)
    return {"judge_model": model, "judge_url": None if url is None else public_url(url.strip())}
