"""The study of label budgets: methods told 20, 50, ... labels, in several draws, from stored signals.

Every draw is a smaller split of the same questions, so the model reads nothing. A method that is scaled predicts once
and is scaled again for each draw; one that is told nothing predicts once. Adapters are not trained again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.api import ConfidenceMethod, UserError
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.run.analyses.label_curves import TaskStudy
from bench.run.analyses.request import LabelsConfig, command_of
from bench.run.analyses.stored import Needed, read_all
from bench.run.forecast import Forecast, duration
from bench.run.inputs import StepResults
from bench.run.pipeline import Work, at_work
from bench.run.plan import Fit, adapted
from bench.run.preparation import Prepared, infeasible_in, prepare
from bench.run.resolve import ResolvedRun
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
    config.sizes(), config.numbers()  # a request that can't be carried out is refused before a model is loaded
    with at_work(config.run_config(), progress, classes) as work:
        report = _Studies.of(config, work, progress).made()
    report.notes += work.notes(failed=False)
    return report


@dataclass(eq=False)
class _Studies:
    """Studies of all tests while they are made."""

    config: LabelsConfig
    work: Work
    progress: Progress
    resolved: ResolvedRun
    """Without methods that don't take part."""
    prepared: Prepared
    absent: dict[str, str]
    """Method -> why it doesn't take part."""

    @classmethod
    def of(cls, config: LabelsConfig, work: Work, progress: Progress) -> _Studies:
        """Decide who takes part, and prepare what is read."""
        resources, absent = work.resources, {}
        methods = dict(work.resolved.methods)
        for name in [name for name, method in methods.items() if adapted(method)]:
            absent[name] = ADAPTERS
            del methods[name]
        resolved = replace(work.resolved, methods=methods)
        prepared = prepare(resolved, resources, infeasible_in(resolved, resources), None)
        studies = cls(config, work, progress, resolved, prepared, absent)
        studies.announce()
        if not any(method.trains() for method in studies.resolved.methods.values()):
            left = f"; left out: {', '.join(absent)}" if absent else ""
            raise UserError(
                f"--method {','.join(config.methods) or 'all'}: expected at least one method that learns and trains no"
                f" adapter, since only these change with the number of labels{left}. See: bench list methods."
            )
        return studies

    def announce(self) -> None:
        """Say what fits cost, and who takes no part."""
        times = len(self.config.sizes()) * len(self.config.numbers())
        seconds = {name: times * one for name, one in self._fit_seconds().items() if one is not None}
        for name, reason in self.absent.items():
            self.progress.say(f"  {name} takes no part: {reason}")
        learners = [name for name, method in self.resolved.methods.items() if method.trains()]
        each = [
            f"{name} {duration(seconds[name], 'at most')}" if name in seconds else f"{name} (not known)"
            for name in learners
        ]
        known = sum(seconds.get(name, 0.0) for name in learners)
        self.progress.say(
            f"Label budgets on {self.config.model}, preset {self.resolved.preset}: {len(learners)} methods that learn"
            f" and {len(self.resolved.methods) - len(learners)} that don't, tested on {', '.join(self.resolved.tests)};"
            f" {', '.join(self.config.labels)} labels, {len(self.config.numbers())} draws each. Fits from nothing:"
            f" {duration(known, 'at most')} ({'; '.join(each)}), less what is stored"
        )

    def _fit_seconds(self) -> dict[str, float | None]:
        """Seconds that a method's fits with all labels take, at most; None where that can't be said."""
        forecast = Forecast(self.prepared, self.resolved, self.work.resources.grader)
        found: dict[str, float | None] = {}
        for step in (step for step in self.prepared.steps if isinstance(step, Fit)):
            one, before = forecast.seconds(step), found.get(step.method, 0.0)
            found[step.method] = None if isinstance(one, str) or before is None else before + one
        return found

    def made(self) -> LabelsReport:
        """Read, draw, fit, predict and compare."""
        resources, guard = self.work.resources, self.work.resolved.isolation
        reader, names = resources.reader, tuple(self.resolved.methods)
        guard.attach(reader.backbone, self.work.resolved.cache)
        needed, ordinary = [Needed(self.resolved, self.prepared)], replace(self.config.run_config(), methods=names)
        with guard.weights_watched("the splits were read"):
            readings = read_all(
                needed, names, resources, self.progress, read=self.config.read, ordinary=[command_of(ordinary)]
            )
        reader.working.rest()
        made = StepResults(self.resolved, self.prepared.selecting, dict(readings))
        studies = [
            TaskStudy.of(self.config, resources, made, test, {**self.absent, **self._barred(test)}, self.progress)
            for test in self.resolved.test_splits
        ]
        for each in studies:
            each.require_labels()
        curves = [each.curves() for each in studies]
        guard.check_weights("after the last prediction")
        notes = dict.fromkeys([*self.work.resolved.notes, *reader.backbone.chat.notes, *self.prepared.notes])
        return LabelsReport(curves, [*notes, *reader.store.notes])

    def _barred(self, test: TaskSplit) -> dict[str, str]:
        """Method -> why it can't run on a test."""
        return {name: reason for (name, where), reason in self.prepared.infeasible.items() if where == test}
