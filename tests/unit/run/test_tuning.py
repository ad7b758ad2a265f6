"""Choice among configurations: the smallest loss on validation, the same number for all, and the account of it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.api import AdapterRef, Needs, Times, UntrainableError, UserError
from bench.api.errors import DiskError, PluginError, without_traceback
from bench.api.protocol import FIXED, PAPER
from bench.metrics import nll
from bench.metrics.recalibration import stratified_folds
from bench.model.cost import StageTokens, total
from bench.results.row import Configuration, LabelsSeen, Training, Tuning
from bench.run import rows, tuning
from bench.run.fitting import Fitted, Tuned
from bench.run.inputs import Inputs
from bench.run.method_factory import MOST, Configurations, refuse_untunable
from bench.run.recalibration import Recalibration
from bench.run.tuning import fit_tuned, reason_untuned, tuning_notes
from bench.store.processes import describe_exit
from bench.training.trainer import DeferredTrainingError

LEARNED: Any = SimpleNamespace(where="train")
HELD: Any = SimpleNamespace(usable=np.array([True, False, True, True]), correct=np.array([True, False, True, False]))
LATER = DeferredTrainingError("elsewhere")


@dataclass
class Planted:
    """Fits whose losses, or failures, are given; `rates` are the values of their configurations."""

    results: list[float | BaseException | None]
    rates: list[float] | None = None
    asked: list[int] = field(default_factory=list)

    @property
    def resolved(self) -> Any:
        values = tuple({"rate": rate} for rate in self.rates or range(len(self.results)))
        bare = SimpleNamespace(rate=None, reads=lambda: Needs(fit=frozenset(), predict=frozenset()))
        return SimpleNamespace(configurations={"m": Configurations({"rate": "0 to 9"}, values)}, methods={"m": bare})

    def fit(self, name: str, learned: object, validation: object, configuration: int = 0) -> Fitted:
        assert (name, learned, validation) == ("m", LEARNED, HELD)
        self.asked.append(configuration)
        result = self.results[configuration]
        if isinstance(result, BaseException):
            raise result
        method: Any = SimpleNamespace(rate=configuration)
        return Fitted(method, Training(validation_nll=result), LabelsSeen(train=9), None, 10.0 + configuration)

    def tuned(self) -> Fitted:
        this: Any = self
        return fit_tuned(this, "m", LEARNED, HELD)


def account(of: Fitted) -> Tuned:
    assert of.tuned is not None
    return of.tuned


def test_tuning_tells_every_configuration() -> None:
    fitted = Planted([0.6, 0.4, 0.5]).tuned()
    found = account(fitted).account
    assert (found.n, found.chosen, found.reason) == (3, 1, None)
    assert found.configurations == (
        Configuration({"rate": "0"}, 0.6, 10.0), Configuration({"rate": "1"}, 0.4, 11.0),
        Configuration({"rate": "2"}, 0.5, 12.0),
    )  # fmt: skip
    assert fitted.labels == LabelsSeen(train=9, validation=3)  # the usable answers, that chose
    assert list(tuning_notes(account(fitted))) == []


@pytest.mark.parametrize(
    ("results", "rates", "chosen", "asked", "seconds"),
    [
        ([0.6, 0.4, 0.5], None, 1, [0, 1, 2], 33.0),  # a method that needs tuning costs it
        ([0.5, 0.5, 0.5], None, 0, [0, 1, 2], 33.0),  # of equal losses the preset's own wins
        ([0.6, 0.5, 0.5], None, 1, [0, 1, 2], 33.0),
        ([0.6, ValueError("it diverged"), None, 0.55], None, 3, [0, 1, 2, 3], 35.0),
        ([0.6, 0.5, 0.6, 0.5], [1.0, 2.0, 1.0, 2.0], 1, [0, 1], 21.0),  # values drawn twice are fitted once
        ([None, None], None, 0, [0, 1], 21.0),
    ],
)
def test_tuning_takes_the_smallest_loss(
    results: list[Any], rates: list[float] | None, chosen: int, asked: list[int], seconds: float
) -> None:
    planted = Planted(results, rates)
    fitted = planted.tuned()
    assert (fitted.method.rate, planted.asked, fitted.seconds) == (chosen, asked, seconds)  # type: ignore[attr-defined]
    assert (fitted.tuned is None) == (results == [None, None])  # nothing is called tuned without a loss


def test_tuning_tells_of_configurations_that_fail() -> None:
    tuned = account(Planted([0.6, ValueError("it diverged"), None, 0.55]).tuned())
    failed = tuned.account.configurations[1]
    assert (failed.validation_nll, failed.seconds) == (None, 0.0)
    assert "it diverged" in str(failed.failure)
    assert len(tuned.fits) == 2  # those that recalibration can choose among
    (note,) = tuning_notes(tuned)
    assert note.startswith("of 4 configurations its constants were chosen among 2: 2 failed, the first with: ")
    assert note.endswith("it diverged")


def test_tuning_tells_of_values_drawn_twice() -> None:
    tuned = account(Planted([0.6, 0.5, 0.6, 0.5], [1.0, 2.0, 1.0, 2.0]).tuned())
    assert len(tuned.account.configurations) == 4
    assert list(tuning_notes(tuned)) == [
        "of 4 configurations its constants were chosen among 2: 2 had been drawn before"
    ]


@pytest.mark.parametrize(
    ("results", "error", "asked"),
    [
        ([UntrainableError("all are right"), 0.5], UntrainableError, [0]),  # as without tuning
        ([LATER, LATER, 0.5], DeferredTrainingError, [0, 1, 2]),  # all are asked for before any is waited for
    ],
)
def test_tuning_that_cannot_be_done_raises(results: list[Any], error: type[Exception], asked: list[int]) -> None:
    planted = Planted(results)
    with pytest.raises(error, match=str(results[0])):
        planted.tuned()
    assert planted.asked == asked


ACCIDENTS = [
    without_traceback(DiskError("The cache could not be written: No space left on device")),
    without_traceback(MemoryError("Unable to allocate 8 GiB")),
    without_traceback(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")),
    UserError("Training the adapter of m failed (exit code 1): step 3\nCUDA out of memory"),
    UserError(f"Training the adapter of m failed ({describe_exit(-9)}): step 3"),
    UserError("Training the adapter of m failed (exit code 1): traceback : Signal 9 (SIGKILL) received by PID 7"),
    PluginError(f"m: its process ended in fit: {describe_exit(-9)}"),
    UserError("The training of m was lost 4 times, each time with its machine (gone). Its checkpoints are stored"),
    PluginError("m: OSError: [Errno 122] Disk quota exceeded"),
]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_accidents_of_the_machine_choose_no_configuration(accident: Exception) -> None:
    planted = Planted([0.6, accident, 0.5])
    with pytest.raises(type(accident)) as raised:
        planted.tuned()
    assert (str(raised.value), planted.asked) == (str(accident), [0, 1])


@pytest.mark.parametrize(
    "end",
    ["ValueError: The loss was nan", "Training failed (exit code 1): The loss was nan", f"m: {describe_exit(-11)}"],
)
def test_divergence_fails_a_configuration_alone(end: str) -> None:
    assert account(Planted([0.6, UserError(end), 0.5]).tuned()).account.configurations[1].failure == end


def test_losing_fits_keep_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recalibration reads their curves; where there is none it needs the method, and of an adapter its cost."""
    losses: list[float | BaseException | None] = [0.6, 0.5, 0.7, 0.8, 0.4, 0.9]
    alive: list[int] = []

    class Weighty(Planted):
        def fit(self, name: str, learned: object, validation: object, configuration: int = 0) -> Fitted:
            alive.append(sum(held() is not None for held in weights))
            method: Any = type("Held", (), {"rate": configuration})()
            weights.append(weakref.ref(method))
            fit = super().fit(name, learned, validation, configuration)
            return replace(fit, method=method, curve=None if configuration == 3 else np.zeros((1, 3)))

    weights: list[weakref.ref[Any]] = []
    fitted = Weighty(losses, [0.0, 1.0, 2.0, 3.0, 4.0, 0.0]).tuned()
    assert [fit.method.rate for fit in account(fitted).fits] == [None, None, None, 3, 4, None]  # type: ignore[attr-defined]
    assert [fit.curve is None for fit in account(fitted).fits] == [False, False, False, True, False, False]
    assert fitted.method.rate == 4  # type: ignore[attr-defined]
    assert alive == [0, 1, 1, 1, 2]  # while the next is fitted
    monkeypatch.setattr(tuning, "uses_trained_adapter", lambda method: method.rate is None)
    kept = account(Weighty(losses).tuned()).fits
    assert [fit.method.rate for fit in kept] == [0, 1, 2, 3, 4, 5]  # type: ignore[attr-defined]


def test_rows_tell_of_the_answers_that_chose() -> None:
    fitted = Planted([0.6, ValueError("it diverged")]).tuned()
    inputs: Any = SimpleNamespace(data_by_split=[], splits=[], selection=HELD, fitted=fitted, complaints=())
    chosen_by, among = rows._notes(inputs, FIXED)
    assert chosen_by == "its constants were chosen by 3 validation answers, 2 of them right"
    assert "1 failed, the first with" in among


def test_tuning_without_validation_fits_the_preset_alone() -> None:
    of: Any = SimpleNamespace(resolved=Planted([0.1]).resolved, fit=lambda *given: given)
    found: Any = fit_tuned(of, "m", LEARNED, None)
    assert found == ("m", LEARNED, None)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, "all that it searches is 0, or was set by hand, and 0 times a factor is 0"),
        ({"rate": 0.1}, "all that it searches was set by hand"),
    ],
)
def test_tuning_of_a_zero_has_its_reason(own: dict[str, object], told: str) -> None:
    method: Any = type("Still", (), {"search": {"rate": Times(0.1, 10)}, "trains": lambda _: True})()
    resolved: Any = SimpleNamespace(methods={"m": method}, configurations={}, deviations={"m": own})
    assert reason_untuned(resolved, "m") == told


@pytest.mark.parametrize(
    ("n", "protocol", "told"),
    [
        *((n, FIXED, "--tune: expected at least 2 configurations, got") for n in (1, 0, -3)),
        (MOST + 1, FIXED, "--tune: expected at most 1,000 configurations, got"),
        (4, PAPER, "'paper' keeps the last step without looking at any"),
    ],
)
def test_tuning_that_is_no_choice_is_refused(n: int, protocol: Any, told: str) -> None:
    refuse_untunable(None, PAPER)
    refuse_untunable(2, FIXED)
    with pytest.raises(UserError, match=told):
        refuse_untunable(n, protocol)


# --- recalibration, cost ----------------------------------------------------------------------------------------------


def test_recalibrators_see_choices_of_the_other_folds() -> None:
    """Against the choice in two steps, written out: the step within a configuration, then the configuration."""
    rng = np.random.default_rng(1)
    correct, usable = rng.random(70) < 0.6, np.arange(70) % 7 != 0
    labels = correct[usable]
    m = len(labels)
    curves = [rng.random((4, m)), None, rng.random((2, m))]
    sure = rng.random(70)
    fits = tuple(Fitted(SimpleNamespace(), Training(), LabelsSeen(), curve, 0.0) for curve in curves)  # type: ignore[arg-type]
    fitted = replace(fits[0], tuned=Tuned(Tuning(3), fits))
    split_data: Any = SimpleNamespace(correct=correct, usable=usable)
    unused: Any = SimpleNamespace()
    predictor: Any = SimpleNamespace(
        confidences=lambda _name, given: SimpleNamespace(confidence=sure * (given.fitted is fits[1]))
    )
    seeded: Any = SimpleNamespace(seed=3)
    recalibration = Recalibration(unused, seeded, predictor, unused)
    found = recalibration._predict_validation("m", Inputs(split_data, split_data, split_data, fitted))

    fold, whole = stratified_folds(labels, seed=3), [curves[0], sure[usable][None], curves[2]]
    chosen = set()
    for k in range(int(fold.max()) + 1):
        out, best = fold != k, (np.inf, np.zeros(m), (-1, -1))
        for c, curve in enumerate(whole):
            assert curve is not None
            losses = [nll(point[out], labels[out]) for point in curve]
            step = int(np.argmin(losses))
            if losses[step] < best[0]:
                best = (losses[step], curve[step], (c, step))
        chosen.add(best[2])
        assert np.array_equal(found[fold == k], best[1][fold == k])
    assert len(chosen) > 1  # folds disagree, so that a choice by all of them would differ


def test_adapters_of_all_configurations_are_paid_for(tmp_path: Path) -> None:
    refs = [AdapterRef(tmp_path / name, name) for name in ("a", "b")]
    methods: Any = [SimpleNamespace(fitted=lambda ref=ref: {"adapter_": ref}) for ref in (*refs, refs[0])]
    fits = tuple(Fitted(method, Training(), LabelsSeen(), None, 1.0) for method in methods)
    tuned = replace(fits[1], tuned=Tuned(Tuning(3), fits))
    through: Any = SimpleNamespace(adapter=refs[1])
    split_data: Any = SimpleNamespace()
    assert Inputs(split_data, adapted=through, fitted=fits[1]).adapters == [refs[1]]
    assert Inputs(split_data, adapted=through, fitted=tuned).adapters == refs
    assert Inputs(split_data, fitted=tuned).adapters == []
    assert total([StageTokens(1, 2, 1), StageTokens(10, 20, 9)]) == StageTokens(11, 22, 10)
