"""Inputs of a result cell, collected from the results of a run's steps: splits, fitted method, adapter, failure."""

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
"""Least validation answers for choosing a training step."""


@dataclass(frozen=True)
class AdaptedSplit:
    """A split read through a method's adapter."""

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
    """Validation split that chooses the training step or scales the scores, if any."""
    fitted: Fitted | None = None
    """None where the method does not learn, or its fit failed."""
    adapted: SplitData | None = None
    """The predicted split as it was read through the method's adapter, if it has one."""
    failure: BaseException | None = None
    """Exception of an earlier step, which prevents the prediction."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds of the earlier steps; a fit that several cells share counts in each."""

    @property
    def splits(self) -> list[SplitData]:
        """The predicted split and, where there are any, training and validation split."""
        return [split_data for split_data in (self.predicted, self.learned, self.selection) if split_data is not None]

    @property
    def data_by_split(self) -> list[SplitData]:
        """All splits of a cell, as the frozen model read them and as an adapter did."""
        return [*self.splits, *([self.adapted] if self.adapted is not None else [])]

    @property
    def tuned(self) -> Fitted | None:
        """The fit that validation chose among the configurations; None where there was nothing to choose."""
        return self.fitted if self.fitted is not None and self.fitted.tuned is not None else None

    @property
    def adapters(self) -> list[AdapterRef]:
        """Every adapter that was trained for these confidences, those of rejected configurations included."""
        if self.adapted is None or self.adapted.adapter is None:
            return []
        if self.fitted is None or self.fitted.tuned is None:
            return [self.adapted.adapter]
        refs = [fit.method.fitted().get("adapter_") for fit in self.fitted.tuned.fits]
        return list({ref.fingerprint: ref for ref in refs if isinstance(ref, AdapterRef)}.values())

    @property
    def complaints(self) -> tuple[str, ...]:
        """Complaints about the validation loss."""
        return tuple(filter(None, [self.fitted.complaint() if self.fitted else None]))

    @property
    def n_learned(self) -> int:
        """Number of training answers."""
        return 0 if self.learned is None else int(self.learned.usable.sum())

    @property
    def base_rate(self) -> float | None:
        """Share of right answers among the training answers."""
        return float(self.learned.correct[self.learned.usable].mean()) if self.learned and self.n_learned else None

    def facts(self, model: ModelFacts) -> RunFacts:
        """Return the facts that `skip` of a method gets."""
        learned = self.learned or self.predicted  # shapes follow the format of the training task
        return RunFacts(model, self.predicted.task.name, learned.task.format, self.n_learned)


@dataclass(frozen=True, eq=False)
class StepResults:
    """Results of the finished steps of a run; an exception where a plugin raised one."""

    resolved: ResolvedRun
    selecting: frozenset[TaskSplit]
    """Validation splits for early stopping."""
    data_by_split: dict[TaskSplit, SplitData]
    fits: dict[Fit, Fitted | BaseException] = field(default_factory=dict)
    adapted: dict[tuple[str, TaskSplit], AdaptedSplit | BaseException | None] = field(default_factory=dict)
    """Method and split -> the split as read through the method's adapter; None where that is not needed."""

    def selection(self, name: str, learned: TaskSplit) -> SplitData | None:
        """Return the validation split for early stopping of a method; None where it has too few answers."""
        split = TrainOn(learned.task, learned.split).selection(self.resolved.methods[name], self.selecting)
        split_data = None if split is None else self.data_by_split[split]
        return split_data if split_data is not None and split_data.usable.sum() >= _MIN_VALIDATION else None

    def inputs(self, name: str, test: TaskSplit, *, validation: bool = False) -> Inputs:
        """Return the inputs of a method's confidences in the answers of its test, or of its validation split.

        Args:
            name: of the method.
            test: test split.
            validation: whether to predict the validation split, which recalibrates the test's confidences.
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
