"""Choice among configurations: the smallest loss on validation, the same number for all, and the account of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.api import AdapterRef, Times, UntrainableError, UserError
from bench.api.protocol import FIXED, PAPER
from bench.metrics import nll
from bench.metrics.recalibration import stratified_folds
from bench.model.cost import StageTokens, total
from bench.results.row import Configuration, LabelsSeen, Training, Tuning
from bench.run import rows
from bench.run.fitting import Fitted, Tuned
from bench.run.inputs import Inputs
from bench.run.method_factory import MOST, Configurations, refuse_untunable
from bench.run.recalibration import Recalibration
from bench.run.tuning import fit_tuned, reason_untuned, tuning_notes
from bench.training.trainer import DeferredTrainingError

LEARNED: Any = SimpleNamespace(where="train")
HELD: Any = SimpleNamespace(usable=np.array([True, False, True, True]))


@dataclass
class Planted:
    """Fits whose losses, or failures, are given."""

    results: list[float | BaseException | None]
    resolved: Any
    asked: list[int] = field(default_factory=list)

    def fit(self, name: str, learned: object, validation: object, configuration: int = 0) -> Fitted:
        assert (name, learned, validation) == ("m", LEARNED, HELD)
        self.asked.append(configuration)
        result = self.results[configuration]
        if isinstance(result, BaseException):
            raise result
        method: Any = SimpleNamespace(rate=configuration)
        return Fitted(method, Training(validation_nll=result), LabelsSeen(train=9), None, 10.0 + configuration)


def tuner(results: list[float | BaseException | None], rates: list[float] | None = None) -> Any:
    """A fitter of method m with as many configurations."""
    values = tuple({"rate": rate} for rate in rates or range(len(results)))
    resolved: Any = SimpleNamespace(configurations={"m": Configurations({"rate": "0 to 9"}, values)})
    return Planted(results, resolved)


def asked(of: Planted) -> list[int]:
    return list(of.asked)


def test_the_smallest_loss_wins_and_every_configuration_is_told() -> None:
    fitted = fit_tuned(tuner([0.6, 0.4, 0.5]), "m", LEARNED, HELD)
    assert fitted.tuned is not None
    assert fitted.method.rate == 1  # type: ignore[attr-defined]
    account = fitted.tuned.account
    assert (account.n, account.chosen, account.reason) == (3, 1, None)
    assert account.configurations == (
        Configuration({"rate": "0"}, 0.6, 10.0), Configuration({"rate": "1"}, 0.4, 11.0),
        Configuration({"rate": "2"}, 0.5, 12.0),
    )  # fmt: skip
    assert fitted.seconds == 33.0  # a method that needs tuning costs it
    assert fitted.labels == LabelsSeen(train=9, validation=3)  # the usable answers, that chose


def test_of_equal_losses_the_earlier_wins_so_the_presets_own_does() -> None:
    assert fit_tuned(tuner([0.5, 0.5, 0.5]), "m", LEARNED, HELD).method.rate == 0  # type: ignore[attr-defined]
    assert fit_tuned(tuner([0.6, 0.5, 0.5]), "m", LEARNED, HELD).method.rate == 1  # type: ignore[attr-defined]


def test_a_configuration_that_fails_or_has_no_loss_is_never_chosen_and_is_told() -> None:
    of = tuner([0.6, ValueError("it diverged"), None, 0.55])
    fitted = fit_tuned(of, "m", LEARNED, HELD)
    assert asked(of) == [0, 1, 2, 3]
    assert fitted.tuned is not None
    assert fitted.tuned.account.chosen == 3
    failed = fitted.tuned.account.configurations[1]
    assert (failed.validation_nll, failed.seconds) == (None, 0.0)
    assert "it diverged" in str(failed.failure)
    assert len(fitted.tuned.fits) == 2  # those that recalibration can choose among
    (note,) = tuning_notes(fitted.tuned)
    assert note.startswith("of 4 configurations its constants were chosen among 2: 2 failed, the first with: ")
    assert note.endswith("it diverged")


def test_where_the_presets_own_fails_the_cell_fails_as_without_tuning() -> None:
    of = tuner([UntrainableError("all are right"), 0.5])
    with pytest.raises(UntrainableError, match="all are right"):
        fit_tuned(of, "m", LEARNED, HELD)
    assert asked(of) == [0]


def test_without_any_loss_the_presets_own_is_kept_and_nothing_is_called_tuned() -> None:
    fitted = fit_tuned(tuner([None, None]), "m", LEARNED, HELD)
    assert fitted.tuned is None
    assert fitted.method.rate == 0  # type: ignore[attr-defined]
    assert fitted.seconds == 21.0


def test_all_adapters_are_asked_for_before_any_is_waited_for() -> None:
    of = tuner([DeferredTrainingError("elsewhere"), DeferredTrainingError("elsewhere"), 0.5])
    with pytest.raises(DeferredTrainingError):
        fit_tuned(of, "m", LEARNED, HELD)
    assert asked(of) == [0, 1, 2]


def test_values_drawn_twice_are_fitted_once() -> None:
    of = tuner([0.6, 0.5, 0.6, 0.5], rates=[1.0, 2.0, 1.0, 2.0])
    fitted = fit_tuned(of, "m", LEARNED, HELD)
    assert asked(of) == [0, 1]
    assert fitted.seconds == 21.0
    assert fitted.tuned is not None
    assert len(fitted.tuned.account.configurations) == 4
    assert list(tuning_notes(fitted.tuned)) == [
        "of 4 configurations its constants were chosen among 2: 2 had been drawn before"
    ]


def test_a_row_tells_of_few_answers_that_chose_and_of_what_they_chose_among() -> None:
    held: Any = SimpleNamespace(correct=np.array([True, True, False]), usable=np.ones(3, dtype=np.bool_))
    fitted = fit_tuned(tuner([0.6, ValueError("it diverged")]), "m", LEARNED, HELD)
    inputs: Any = SimpleNamespace(data_by_split=[], selection=held, fitted=fitted, complaints=())
    chosen_by, among = rows._notes(inputs, FIXED)
    assert chosen_by == "its constants were chosen by 3 validation answers, 2 of them right"
    assert "1 failed, the first with" in among


def test_a_whole_budget_needs_no_note() -> None:
    tuned = fit_tuned(tuner([0.6, 0.4, 0.5]), "m", LEARNED, HELD).tuned
    assert tuned is not None
    assert not list(tuning_notes(tuned))


def test_without_validation_answers_the_preset_is_fitted_alone() -> None:
    of: Any = SimpleNamespace(resolved=tuner([0.1]).resolved, fit=lambda *given: given)
    assert fit_tuned(of, "m", LEARNED, None) == ("m", LEARNED, None)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, "all that it searches is 0, or was set by hand, and 0 times a factor is 0"),
        ({"rate": 0.1}, "all that it searches was set by hand"),
    ],
)
def test_a_zero_that_only_a_factor_could_move_is_not_called_set_by_hand(own: dict[str, object], told: str) -> None:
    method: Any = type("Still", (), {"search": {"rate": Times(0.1, 10)}, "trains": lambda _: True})()
    resolved: Any = SimpleNamespace(methods={"m": method}, configurations={}, deviations={"m": own})
    assert reason_untuned(resolved, "m") == told


@pytest.mark.parametrize("n", [1, 0, -3, MOST + 1])
def test_a_number_that_is_no_choice_is_refused(n: int) -> None:
    with pytest.raises(UserError, match=r"--tune: expected at (least 2|most 1,000) configurations, got"):
        refuse_untunable(n, FIXED)


def test_a_preset_that_keeps_the_last_step_can_t_be_tuned() -> None:
    with pytest.raises(UserError, match="'paper' keeps the last step without looking at any"):
        refuse_untunable(4, PAPER)
    refuse_untunable(None, PAPER)
    refuse_untunable(2, FIXED)


# --- recalibration, cost ----------------------------------------------------------------------------------------------


def test_recalibrators_see_confidences_whose_configuration_and_step_the_other_folds_chose() -> None:
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
    resolved: Any = SimpleNamespace()
    predictor: Any = SimpleNamespace(
        confidences=lambda _name, given: SimpleNamespace(confidence=sure * (given.fitted is fits[1]))
    )
    seeded: Any = SimpleNamespace(seed=3)
    recalibration = Recalibration(resolved, resolved, seeded, predictor, resolved)
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
    through: Any = SimpleNamespace(adapter=refs[1])
    split_data: Any = SimpleNamespace()
    assert Inputs(split_data, adapted=through, fitted=fits[1]).adapters == [refs[1]]
    assert Inputs(split_data, adapted=through, fitted=replace(fits[1], tuned=Tuned(Tuning(3), fits))).adapters == refs
    assert Inputs(split_data, fitted=replace(fits[1], tuned=Tuned(Tuning(3), fits))).adapters == []
    assert total([StageTokens(1, 2, 1), StageTokens(10, 20, 9)]) == StageTokens(11, 22, 10)
