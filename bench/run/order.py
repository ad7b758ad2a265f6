"""Order of a run's steps where adapters are trained on other machines: what rests on a training comes after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench.engine.trainings import Trainings
from bench.progress import Progress
from bench.run.fitting import Fitter
from bench.run.inputs import StepResults
from bench.run.plan import Fit, Read, Step, TrainOn, adapted
from bench.training.trainer import PutOffError


@dataclass
class Order:
    """Steps in turn."""

    steps: Sequence[Step]
    trainings: Trainings | None
    """None: adapters are trained by this machine, and every step is done when its turn comes."""
    fitter: Fitter
    made: StepResults
    """Results of the steps so far."""
    progress: Progress
    _later: list[Step] = field(default_factory=list, init=False)

    def __iter__(self) -> Iterator[Step]:
        """Each step when it can be done; a fit that was put off once more, and with it what needs it."""
        if self.trainings is None:
            yield from self.steps
            return
        self.fitter.puts_off = True
        for step in dict.fromkeys([*self._first(), *self.steps]):
            if self._rests(step):
                self._later.append(step)
                continue
            yield step
            if isinstance(step, Fit) and isinstance(self.made.fits[step], PutOffError):
                self._later.append(step)
        self.fitter.puts_off = False
        if self._later:
            self.trainings.finish(self.progress)
        yield from self._later

    def _first(self) -> Iterator[Step]:
        """Fits that train adapters, each after what is read for it: while they are made, all else is read."""
        reads = {step.where: step for step in self.steps if isinstance(step, Read)}
        for step in self.steps:
            if isinstance(step, Fit) and adapted(method := self.made.resolved.methods[step.method]):
                chosen_by = TrainOn(step.where.task, step.where.split).selection(method, self.made.selecting)
                yield from (reads[where] for where in (step.where, chosen_by) if where is not None)
                yield step

    def _rests(self, step: Step) -> bool:
        """Whether a step waits for trainings: it needs one of the fits, or the cards on which they are made."""
        if isinstance(step, Read):
            return False
        if isinstance(step, Fit):
            alone = adapted(self.made.resolved.methods[step.method])
            return bool(self._later) and not alone and self.trainings is not None and self.trainings.on_cards
        return step.method in {each.method for each in self._later if isinstance(each, Fit)}
