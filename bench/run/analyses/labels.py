"""The study of label budgets: methods told 20, 50, ... labels, in several draws, from stored signals.

Every draw is a smaller split of the same questions, so the model reads nothing. A method that is scaled predicts once
and is scaled again for each draw; one that is told nothing predicts once. Adapters are not trained again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.api import ConfidenceMethod, UserError
from bench.progress import Progress
from bench.run.analyses.label_curves import TaskStudy
from bench.run.analyses.request import LabelsConfig, command_of
from bench.run.analyses.stored import Needed, read_all
from bench.run.forecast import Forecast, duration
from bench.run.inputs import StepResults
from bench.run.pipeline import at_work
from bench.run.plan import Fit, adapted
from bench.run.preparation import infeasible_in, prepare
from bench.stats.labels import LabelCurves

ADAPTERS = "not trained again: each draw would need an adapter of its own, and every test read through it"


@dataclass
class LabelsReport:
    """Curves of each test and account of the work."""

    curves: list[LabelCurves]
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""


def run_labels(
    config: LabelsConfig, progress: Progress, classes: Sequence[type[ConfidenceMethod]] = ()
) -> LabelsReport:
    """Make the study of each test.

    Args:
        config: the request.
        progress: told how far it is.
        classes: methods of no file, which the request names too.

    Raises:
        UserError: nothing to study, something unknown, more labels than there are, or signals that are not stored and
            were not to be read.
    """
    times = len(config.sizes()) * len(config.numbers())  # a bad request is refused before a model is loaded
    with at_work(config.run_config(), progress, classes) as work:
        resources, reader = work.resources, work.resources.reader
        absent = {name: ADAPTERS for name, method in work.resolved.methods.items() if adapted(method)}
        taking = {name: method for name, method in work.resolved.methods.items() if name not in absent}
        resolved = replace(work.resolved, methods=taking)
        prepared = prepare(resolved, resources, infeasible_in(resolved, resources), None)
        _announce(config, times, Forecast(prepared, resolved, resources.grader), absent, progress)
        if not any(method.trains() for method in taking.values()):
            left = f"; left out: {', '.join(absent)}" if absent else ""
            raise UserError(
                f"--method {','.join(config.methods) or 'all'}: expected at least one method that learns and trains no"
                f" adapter, since only these change with the number of labels{left}. See: bench list methods."
            )
        ordinary = command_of(replace(config.run_config(), methods=tuple(taking)))
        needed = [Needed(resolved, prepared)]
        readings = read_all(needed, tuple(taking), resources, progress, read=config.read, ordinary=[ordinary])
        reader.working.rest()
        made = StepResults(resolved, prepared.selecting, dict(readings))
        studies = []
        for test in resolved.test_splits:
            barred = {name: reason for (name, where), reason in prepared.infeasible.items() if where == test}
            studies.append(TaskStudy.of(config, resources, made, test, absent | barred, progress))
        for each in studies:
            each.require_labels()
        curves = [each.curves() for each in studies]
        notes = dict.fromkeys([*work.resolved.notes, *reader.backbone.chat.notes, *prepared.notes])
        every = [*notes, *reader.store.notes]
    return LabelsReport(curves, every + work.notes(failed=False))


def _announce(
    config: LabelsConfig, times: int, forecast: Forecast, absent: Mapping[str, str], progress: Progress
) -> None:
    """Say what fits cost, and who takes no part.

    Args:
        config: the request.
        times: fits of a method on each test.
        forecast: of the run with all labels.
        absent: method -> why it doesn't take part.
        progress: told.
    """
    for name, reason in absent.items():
        progress.say(f"  {name} takes no part: {reason}")
    resolved = forecast.resolved
    seconds: dict[str, float | None] = {}
    for step in (step for step in forecast.prepared.steps if isinstance(step, Fit)):
        one, before = forecast.seconds(step), seconds.get(step.method, 0.0)
        seconds[step.method] = None if isinstance(one, str) or before is None else before + times * one
    learners = [name for name, method in resolved.methods.items() if method.trains()]
    known = {name: own for name in learners if (own := seconds.get(name)) is not None}
    each = [f"{name} {duration(known[name], 'at most') if name in known else '(not known)'}" for name in learners]
    progress.say(
        f"Label budgets on {config.model}, preset {resolved.preset}: {len(learners)} methods that learn"
        f" and {len(resolved.methods) - len(learners)} that don't, tested on {', '.join(resolved.tests)};"
        f" {', '.join(config.labels)} labels, {len(config.numbers())} draws each. Fits from nothing:"
        f" {duration(sum(known.values()), 'at most')} ({'; '.join(each)}), less what is stored"
    )
