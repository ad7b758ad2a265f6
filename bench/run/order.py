"""Order of a run's steps where adapters are trained on other machines: what rests on a training comes after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.engine.trainings import Trainings
from bench.progress import Progress
from bench.run.fitting import Fitter
from bench.run.inputs import StepResults
from bench.run.plan import Fit, Read, Step, TrainOn, adapted
from bench.training.trainer import PutOffError


def in_order(
    steps: Sequence[Step], trainings: Trainings | None, fitter: Fitter, made: StepResults, progress: Progress
) -> Iterator[Step]:
    """Each step when it can be done; a fit that was put off once more, and with it what needs it.

    Args:
        steps: of the run, in turn.
        trainings: None: adapters are trained by this machine, and every step is done when its turn comes.
        fitter: puts fits off until trainings are over.
        made: results of the steps so far.
        progress: told of the trainings.
    """
    if trainings is None:
        yield from steps
        return
    methods = made.resolved.methods
    reads = {step.where: step for step in steps if isinstance(step, Read)}
    first: list[
        Step
    ] = []  # fits that train adapters, after what is read for them: while they are made, all else is read
    for step in steps:
        if isinstance(step, Fit) and adapted(method := methods[step.method]):
            chosen_by = TrainOn(step.where.task, step.where.split).selection(method, made.selecting)
            first += [*(reads[where] for where in (step.where, chosen_by) if where is not None), step]
    later: list[Step] = []
    fitter.puts_off = True
    for step in dict.fromkeys([*first, *steps]):
        if isinstance(step, Fit):  # another fit may need the cards on which adapters are trained
            waits = bool(later) and trainings.on_cards and not adapted(methods[step.method])
        else:
            waits = not isinstance(step, Read) and any(isinstance(x, Fit) and x.method == step.method for x in later)
        if not waits:
            yield step
        if waits or (isinstance(step, Fit) and isinstance(made.fits[step], PutOffError)):
            later.append(step)
    fitter.puts_off = False
    if later:
        trainings.finish(progress)
    yield from later
