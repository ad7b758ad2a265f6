"""Format the training of a method for tables and the page: steps, epochs and losses over the seeds.

Example: `format_stages(trainings)[0].best` is `1,250` if every seed kept the weights of step 1,250.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from bench import registry
from bench.report.text import EN_DASH, count, mean_of, range_text
from bench.results.row import Training

_CUT_SHORT = (
    "training was cut short after {} epochs: the loss on validation was still falling, and the published training is"
    " longer{}; no rank, and never marked as best"
)
LOSSES = ("train_nll", "validation_nll", "base_rate_nll")


class Stage(NamedTuple):
    """One stage of a method's training as text: step whose weights were kept, steps taken, step limit and epochs.

    Each text is the range over the seeds.
    """

    name: str
    best: str
    steps: str
    limit: str
    epochs: str


def format_stages(trainings: Sequence[Training]) -> list[Stage]:
    """Format each stage of a method's training, as ranges over the seeds."""
    by_stage = zip(*(training.stages for training in trainings), strict=False)
    return [
        Stage(
            seeds[0].name,
            range_text((stage.kept for stage in seeds), count),
            range_text((stage.taken for stage in seeds), count),
            range_text((stage.limit for stage in seeds), count),
            range_text((stage.epochs for stage in seeds), one_decimal),
        )
        for seeds in by_stage
    ]


def format_losses(trainings: Sequence[Training]) -> list[str]:
    """Format each of the negative log-likelihoods in `LOSSES` as mean over seeds, in nats; unknown ones as a dash."""
    return [EN_DASH if mean is None else f"{mean:.3f}" for mean in (mean_of_field(trainings, name) for name in LOSSES)]


def mean_of_field(trainings: Sequence[Training], name: str) -> float | None:
    """Return the mean over seeds of a field of `Training`; None if no seed has a value."""
    return mean_of(getattr(training, name) for training in trainings)


def sum_of_stages(trainings: Sequence[Training], name: str) -> float | None:
    """Sum a field over the training stages of each seed, and return the mean over seeds; None if no seed has stages."""
    return mean_of(float(sum(getattr(stage, name) for stage in t.stages)) for t in trainings if t.stages)


def cut_short_note(trainings: Sequence[Training], published: str = "") -> str:
    """Return the footnote of a method whose training was cut short; empty if no training was cut short.

    Args:
        trainings: trainings of the method, one for each seed.
        published: length of the published training, in words; empty if unknown.
    """
    epochs = [stage.epochs for training in trainings for stage in training.stages if stage.cut_short]
    return _CUT_SHORT.format(range_text(epochs, one_decimal), f" ({published})" if published else "") if epochs else ""


@cache
def published_training(method: str) -> str:
    """Return in words how long a built-in method was trained in its paper; empty if unknown."""
    methods, _ = registry.built_in()
    return methods.get(method).published_training if method in methods.names() else ""


def training_facts(trainings: Sequence[Training]) -> list[tuple[str, str]]:
    """Return facts on a method's training for the HTML page, as pairs of name and text, e.g. `("Epochs", "3.0")`."""
    if not trainings:
        return []
    facts = [
        (f"Steps{f' ({stage.name})' if stage.name else ''}", f"{stage.best} kept of {stage.steps}, limit {stage.limit}")
        for stage in format_stages(trainings)
    ]
    facts += [("Epochs", " + ".join(stage.epochs for stage in format_stages(trainings)))] if facts else []
    names = ("NLL in training", "NLL in validation", "NLL of a constant")
    return facts + [(name, text) for name, text in zip(names, format_losses(trainings), strict=True) if text != EN_DASH]


one_decimal: Callable[[float], str] = "{:,.1f}".format
