"""Inputs that the numbers of a cell rest on, gathered from what the steps of a run have made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.api import AdapterRef, ModelFacts, RunFacts
from bench.data.splits import TaskSplit
from bench.run.fitting import Fitted
from bench.run.plan import Fit, TrainOn
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData

_MIN_VALIDATION = 2
"""Answers that are needed to choose a step by."""


@dataclass(frozen=True)
class AdaptedSplit:
    """A split as it was read through a method's adapter."""

    split_data: SplitData
    seconds: float


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of a method's confidences in the answers of a split."""

    predicted: SplitData
    """The split whose answers are predicted."""
    learned: SplitData | None = None
    """None where the method does not learn."""
    selection: SplitData | None = None
    """The validation split by which the step of the training was chosen, or scores are scaled, if any."""
    fitted: Fitted | None = None
    """None where the method does not learn, or failed to."""
    adapted: SplitData | None = None
    """The predicted split as it was read through the method's adapter, if it has one."""
    failure: BaseException | None = None
    """Exception of a step before, so that nothing can be predicted."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds of the steps before; a fit that serves several cells is in each."""

    @property
    def splits(self) -> list[SplitData]:
        """The predicted split and, where there are any, what was learned from, chosen by or scaled on."""
        return [split_data for split_data in (self.predicted, self.learned, self.selection) if split_data is not None]

    @property
    def data_by_split(self) -> list[SplitData]:
        """Splits that a cell rests on, as the frozen model and as an adapter read them."""
        return [*self.splits, *([self.adapted] if self.adapted is not None else [])]

    @property
    def tuned(self) -> Fitted | None:
        """The method as validation chose it among its configurations; None where there was nothing to choose."""
        return self.fitted if self.fitted is not None and self.fitted.tuned is not None else None

    @property
    def adapters(self) -> list[AdapterRef]:
        """Every adapter that was trained for these confidences: its own, and those of configurations not chosen."""
        if self.adapted is None or self.adapted.adapter is None:
            return []
        if self.fitted is None or self.fitted.tuned is None:
            return [self.adapted.adapter]
        refs = [fit.method.fitted().get("adapter_") for fit in self.fitted.tuned.fits]
        return list({ref.fingerprint: ref for ref in refs if isinstance(ref, AdapterRef)}.values())

    @property
    def complaints(self) -> tuple[str, ...]:
        """Complaints that validation already justifies."""
        return tuple(filter(None, [self.fitted.complaint() if self.fitted else None]))

    @property
    def n_learned(self) -> int:
        """Answers that `fit` gets."""
        return 0 if self.learned is None else int(self.learned.usable.sum())

    @property
    def base_rate(self) -> float | None:
        """Share of right answers among these."""
        return float(self.learned.correct[self.learned.usable].mean()) if self.learned and self.n_learned else None

    def facts(self, model: ModelFacts) -> RunFacts:
        """Facts by which a method may decide to be skipped."""
        learned = self.learned or self.predicted  # a method that learned elsewhere has the shapes of that format
        return RunFacts(model, self.predicted.task.name, learned.task.format, self.n_learned)


@dataclass(frozen=True, eq=False)
class StepResults:
    """Results of the steps of a run so far; an exception stands where a plugin raised it instead."""

    resolved: ResolvedRun
    selecting: frozenset[TaskSplit]
    """Validation splits by which methods choose the step of their training to keep."""
    data_by_split: dict[TaskSplit, SplitData]
    fits: dict[Fit, Fitted | BaseException] = field(default_factory=dict)
    adapted: dict[tuple[str, TaskSplit], AdaptedSplit | BaseException | None] = field(default_factory=dict)
    """Method and split -> the split as read through the method's adapter; None where that is not needed."""

    def selection(self, name: str, learned: TaskSplit) -> SplitData | None:
        """The validation split by which a method that learns here chooses its step, unless it has too few answers."""
        split = TrainOn(learned.task, learned.split).selection(self.resolved.methods[name], self.selecting)
        split_data = None if split is None else self.data_by_split[split]
        return split_data if split_data is not None and split_data.usable.sum() >= _MIN_VALIDATION else None

    def inputs(self, name: str, test: TaskSplit, *, validation: bool = False) -> Inputs:
        """Inputs of a method's confidences in the answers of a test, or in the validation answers of where it learned.

        Args:
            name: of the method.
            test: that it is tested on.
            validation: whether the validation answers are meant, by which it is recalibrated for the test.
        """
        method, train_on = self.resolved.methods[name], self.resolved.learn_on[test.task]
        predicted, where = train_on.validation if validation else test, train_on.where(method)
        adapted = self.adapted.get((name, predicted))
        if not method.trains() or where not in self.data_by_split:
            scores = method.output == "score" and not validation
            return Inputs(
                self.data_by_split[predicted],
                selection=self.data_by_split.get(train_on.validation) if scores else None,
            )
        fitted = self.fits.get(Fit(name, where))
        failures = [result for result in (fitted, adapted) if isinstance(result, BaseException)]
        seconds = {"fit": fitted.seconds} if isinstance(fitted, Fitted) else {}
        if isinstance(adapted, AdaptedSplit):
            seconds["adapter_predictions"] = adapted.seconds
        return Inputs(
            self.data_by_split[predicted],
            self.data_by_split[where],
            self.selection(name, where),
            fitted if isinstance(fitted, Fitted) else None,
            adapted.split_data if isinstance(adapted, AdaptedSplit) else None,
            failures[0] if failures else None,
            seconds,
        )
