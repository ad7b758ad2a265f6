"""Collect what a cell is computed from: splits, fit and adapter of a method, or the exception of a failed step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.api import AdapterRef, ModelFacts, RunFacts
from bench.data.splits import TaskSplit
from bench.run.fitting import Fitted
from bench.run.plan import Fit, TrainOn, trained_adapter
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData

_MIN_VALIDATION = 2
"""Smallest number of validation answers that can choose a training step."""


@dataclass(frozen=True)
class AdaptedSplit:
    """A split that the model read again with a method's adapter, and the seconds that this reading took."""

    split_data: SplitData
    seconds: float


@dataclass(frozen=True, eq=False)
class Inputs:
    """Data from which a method's confidences in the answers of one split are computed."""

    predicted: SplitData
    """The split in whose answers the confidences are predicted."""
    learned: SplitData | None = None
    """Training split; None if the method is untrained, or the run does not read this split."""
    selection: SplitData | None = None
    """Validation split on which the training step is chosen or the scores are scaled; None if neither is done."""
    fitted: Fitted | None = None
    """The method's fit; None if the method is untrained, or the fit failed or was not made."""
    adapted: SplitData | None = None
    """The predicted split as the model read it with the method's adapter; None without an adapter, if this reading
    failed, or if the confidences were recorded in training."""
    failure: BaseException | None = None
    """Exception of an earlier step, such as the fit, that makes a prediction impossible; None if there was none."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Stage (fit, adapter_predictions) -> seconds; if cells share a fit, each of them counts its full time."""

    @property
    def splits(self) -> list[SplitData]:
        """The predicted split, the training split and the validation split, as far as there are any."""
        return [split_data for split_data in (self.predicted, self.learned, self.selection) if split_data is not None]

    @property
    def data_by_split(self) -> list[SplitData]:
        """All of `splits` as the frozen model read them, and the predicted split as read with the adapter, if any."""
        return [*self.splits, *([self.adapted] if self.adapted is not None else [])]

    @property
    def tuned(self) -> Fitted | None:
        """The fit that validation chose among several configurations; None if there was no such choice."""
        return self.fitted if self.fitted is not None and self.fitted.tuned is not None else None

    @property
    def adapters(self) -> list[AdapterRef]:
        """Every adapter that was trained for these confidences; also those of configurations that were not chosen."""
        if self.adapted is None or self.adapted.adapter is None:
            return []
        if self.fitted is None or self.fitted.tuned is None:
            return [self.adapted.adapter]
        refs = filter(None, (trained_adapter(fit.method) for fit in self.fitted.tuned.fits))
        return list({ref.fingerprint: ref for ref in refs}.values())

    @property
    def complaints(self) -> tuple[str, ...]:
        """The complaint that the fit's validation loss is too large; empty if there is none."""
        return tuple(filter(None, [self.fitted.complaint() if self.fitted else None]))

    @property
    def n_learned(self) -> int:
        """Number of training answers."""
        return 0 if self.learned is None else int(self.learned.usable.sum())

    @property
    def base_rate(self) -> float | None:
        """Share of right answers among the training answers; None if there are no training answers."""
        return float(self.learned.correct[self.learned.usable].mean()) if self.learned and self.n_learned else None

    def facts(self, model: ModelFacts) -> RunFacts:
        """Return the facts about the run that are passed to a method's `skip`."""
        learned = self.learned or self.predicted  # shapes follow the format of the training task
        return RunFacts(model, self.predicted.task.name, learned.task.format, self.n_learned)


@dataclass(frozen=True, eq=False)
class StepResults:
    """Results of the finished steps of a run. If a plugin raised an exception in a step, this is the step's result."""

    resolved: ResolvedRun
    selecting: frozenset[TaskSplit]
    """Validation splits that are used for early stopping, i.e. to choose training steps."""
    data_by_split: dict[TaskSplit, SplitData]
    fits: dict[Fit, Fitted | BaseException] = field(default_factory=dict)
    adapted: dict[tuple[str, TaskSplit], AdaptedSplit | BaseException | None] = field(default_factory=dict)
    """(method, split) -> the split as read with the method's adapter. None if the confidences were recorded in
    training."""

    def selection(self, name: str, learned: TaskSplit) -> SplitData | None:
        """Return the validation split for early stopping of a method; None if there is none or it has too few answers.

        Args:
            name: name of the method.
            learned: training split of the method.
        """
        split = TrainOn(learned.task, learned.split).selection(self.resolved.methods[name], self.selecting)
        split_data = None if split is None else self.data_by_split[split]
        return split_data if split_data is not None and split_data.usable.sum() >= _MIN_VALIDATION else None

    def inputs(self, name: str, test: TaskSplit, *, validation: bool = False) -> Inputs:
        """Return the data from which a method's confidences in a test split are computed.

        Args:
            name: name of the method.
            test: test split.
            validation: whether to predict, instead of the test, the validation split by which the test's confidences
                are recalibrated.
        """
        method, train_on = self.resolved.methods[name], self.resolved.learn_on[test.task]
        predicted, where = train_on.validation if validation else test, train_on.split_of(method)
        adapted = self.adapted.get((name, predicted))
        if not method.trains() or where not in self.data_by_split:
            scores = method.output == "score" and not validation
            return Inputs(
                self.data_by_split[predicted], selection=self.data_by_split.get(train_on.validation) if scores else None
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
