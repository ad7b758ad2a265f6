"""Methods that train adapters in a matrix: they take part where a run has trained and read them, unless asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.progress import Progress
from bench.run.analyses.request import TransferConfig
from bench.run.analyses.stored import Needed, missing
from bench.run.forecast import Forecast, duration
from bench.run.plan import Adapt, Fit, adapted
from bench.run.preparation import Resources
from bench.training.assignment import Assignment
from bench.training.trainer import PutOffError

WAY_OUT = "--with-adapters does it"


class Never:
    """In the place of machines that train adapters: a stored one is found before; no other is trained."""

    def begun(self, key: str) -> bool:
        """Whether it trains here."""
        del key
        return False

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """Refuse it.

        Raises:
            PutOffError: always.
        """
        del key, wait
        raise PutOffError(work.method)


@dataclass(eq=False)
class Adapters:
    """Adapters of a matrix."""

    config: TransferConfig
    needed: Sequence[Needed]
    """One for each corpus."""
    resources: Resources
    progress: Progress
    absent: dict[str, str] = field(default_factory=dict)
    """Method -> why none of its cells is there."""

    def taking(self) -> list[str]:
        """Methods that take part: without adapters all, of the others those of which the splits are stored."""
        methods = self.needed[0].resolved.methods
        found = []
        for name, method in methods.items():
            if adapted(method) and not self.config.with_adapters and missing(self.needed, [name], self.resources):
                self.absent[name] = f"not trained again: what it learns from is not stored; {WAY_OUT}"
            else:
                found.append(name)
        return found

    def say_cost(self, taking: Sequence[str], times: int) -> None:
        """Say what training and reading adapters costs, where that was asked for.

        Args:
            taking: methods that take part.
            times: fits on each corpus.
        """
        names = [name for name in taking if adapted(self.needed[0].resolved.methods[name])]
        if not names or not self.config.with_adapters:
            return
        seconds: list[float | str] = []
        for each in self.needed:
            forecast = Forecast(each.prepared, each.resolved, self.resources.grader)
            steps = [step for step in each.prepared.steps if isinstance(step, Fit | Adapt) and step.method in names]
            seconds += [forecast.seconds(step) for step in steps]
        known = [value for value in seconds if not isinstance(value, str)]
        cost = duration(times * sum(known), "at most") if len(known) == len(seconds) else "a time that can't be said"
        self.progress.say(
            f"--with-adapters: {', '.join(names)} are trained {times * len(self.needed) * len(names)} times and read"
            f" each test through each adapter; from nothing {cost}, less what is stored"
        )
