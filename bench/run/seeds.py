"""Several seeds of one request, one after the other: one that stops costs the others nothing.

What the model reads doesn't depend on the seed, but for samples: it lies in the store after the first one. The loaded
model is handed on as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.api import ContractError, UserError
from bench.progress import Progress
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport, run
from bench.run.preparation import Opened


@dataclass(frozen=True)
class Outcome:
    """Outcome of one seed: its report, or the sentence about what stopped it."""

    seed: int
    report: RunReport | None
    stopped: str = ""


@dataclass
class JointReport(RunReport):
    """Reports of several seeds as one."""

    stopped: list[str] = field(default_factory=list)
    """A sentence about each seed that was stopped."""


def run_each(configs: Sequence[RunConfig], progress: Progress) -> list[Outcome]:
    """Run requests that differ in their seeds alone.

    Raises:
        UserError, ContractError: of a single request, or of all alike; nothing was computed for it.
    """
    if len(configs) == 1:
        return [Outcome(configs[0].seed, run(configs[0], progress))]
    seeds = ", ".join(str(config.seed) for config in configs)
    progress.say(
        f"Seeds {seeds}, one after the other, each with results of its own; what the model reads for seed"
        f" {configs[0].seed} is stored for the others, but for samples"
    )
    opened, outcomes, errors = Opened(), [], []
    for config in configs:
        try:
            outcomes.append(Outcome(config.seed, run(config, progress, opened=opened)))
        except (UserError, ContractError) as error:
            opened = Opened()  # its weights may not be what they were
            errors.append(error)
            outcomes.append(Outcome(config.seed, None, f"seed {config.seed}: {error}"))
            progress.say(f"seed {config.seed} stopped: {error}")
    if len(errors) == len(configs) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return outcomes


def together(outcomes: Sequence[Outcome]) -> JointReport:
    """All reports as one; plans name their seeds where there are several, and a note is told once."""
    done = [(outcome.seed, outcome.report) for outcome in outcomes if outcome.report is not None]
    several = len(outcomes) > 1
    return JointReport(
        plan=[f"seed {seed}: {line}" if several else line for seed, report in done for line in report.plan],
        rows=[row for _, report in done for row in report.rows],
        paths=[path for _, report in done for path in report.paths],
        heads=[path for _, report in done for path in report.heads],
        notes=list(dict.fromkeys(note for _, report in done for note in report.notes)),
        forward_tokens=sum(report.forward_tokens for _, report in done),
        stopped=[outcome.stopped for outcome in outcomes if outcome.stopped],
    )
