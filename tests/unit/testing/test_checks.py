"""The contract checks pass an honest third-party method and catch dishonest ones."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.api import (
    At,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Format,
    Hidden,
    Needs,
    Of,
    PromptStyle,
    QueryLogits,
    Question,
    RunFacts,
    SampleAgreement,
    Split,
    Task,
    TaskCard,
    Times,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.signals.synthetic import LETTERS, planted
from bench.testing import check_plugin, checks_for
from bench.testing.check import MakeMethod

MARGIN = '''"""Margin between the two most likely options (Scheffer et al., 2001)."""

from __future__ import annotations

import numpy as np

from bench.api import Batch, ChoiceLogits, ConfidenceMethod, Context, FloatArray, Needs, method


@method("margin")
class Margin(ConfidenceMethod):
    """Logistic regression on the gap between the two best options."""

    reference = "doi:10.1007/3-540-44816-0_31"
    needs = Needs(fit=frozenset({ChoiceLogits()}), predict=frozenset({ChoiceLogits()}))

    def __init__(self, steps: int = 500, rate: float = 0.5) -> None:
        self.steps = steps
        self.rate = rate

    def fit(self, train: Batch, ctx: Context) -> Margin:
        """Fit slope and offset by gradient descent on the log loss."""
        gap, y = self._gap(train), train.correct.astype(np.float64)
        slope, offset = 1.0, 0.0
        for _ in range(self.steps):
            error = self._sigmoid(slope * gap + offset) - y
            slope -= self.rate * float((error * gap).mean())
            offset -= self.rate * float(error.mean())
        self.slope_, self.offset_ = slope, offset
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Map the gap to a probability, shape (n,)."""
        return self._sigmoid(self.slope_ * self._gap(batch) + self.offset_)

    @staticmethod
    def _gap(batch: Batch) -> FloatArray:
        best = np.sort(batch[ChoiceLogits()].astype(np.float64), axis=1)  # (n, k)
        return best[:, -1] - best[:, -2]

    @staticmethod
    def _sigmoid(z: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + np.exp(-z))
'''
"""What a third party writes, with logits made float64: confidences must be."""


def _broken_rules(plugin: Any) -> dict[str, str]:
    """Check name -> message, for the checks that fail."""
    broken = {}
    for make, check in checks_for(plugin):
        try:
            check(make)
        except AssertionError as error:
            broken[check.__name__] = str(error)
    return broken


# --- an honest method -------------------------------------------------------------------------------------------------


def test_third_party_example_passes(tmp_path: Path) -> None:
    path = tmp_path / "margin.py"
    path.write_text(MARGIN)
    results = check_plugin(path)
    assert [r for r in results if not r.ok] == []
    assert len(results) == 22


@pytest.mark.slow
def test_third_party_example_takes_seconds(tmp_path: Path) -> None:
    path = tmp_path / "margin.py"
    path.write_text(MARGIN)
    started = time.process_time()
    check_plugin(path)
    assert time.process_time() - started < 5


class Honest(ConfidenceMethod):
    """Slope on the self-check's log odds."""

    name = "honest"
    reference = "arXiv:2207.05221"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    initial_slope: ClassVar[float] = 1.0

    def __init__(self, steps: int = 20) -> None:
        self.steps = steps

    def fit(self, train: Batch, ctx: Context) -> Honest:
        self.slope_ = self.initial_slope + float(ctx.rng.random()) + 0.01 * float(train.correct.mean())
        return self

    def _odds(self, batch: Batch) -> FloatArray:
        z = batch[QueryLogits()].astype(np.float64)
        return z[:, 1] - z[:, 0]

    def predict(self, batch: Batch) -> FloatArray:
        return 1.0 / (1.0 + np.exp(-self.slope_ * self._odds(batch)))


class OneSided(Honest):
    """Keeps its slope where all answers are right, though it says that it learns from them."""

    takes_one_class = True


def test_honest_method_passes_in_both_formats() -> None:
    assert _broken_rules(Honest) == {}
    makes = {make for make, _ in checks_for(Honest)}
    assert {make.format for make in makes if isinstance(make, MakeMethod)} == set(Format)


# --- dishonest ones: each breaks one rule -----------------------------------------------------------------------------


class BatchScaling(Honest):
    """Stretches each batch to [0, 1]."""

    def predict(self, batch: Batch) -> FloatArray:
        p = super().predict(batch)
        return (p - p.min()) / (np.ptp(p) + 1e-9)


class RunningMean(Honest):
    """Learns while it predicts."""

    def predict(self, batch: Batch) -> FloatArray:
        self.seen = getattr(self, "seen", 0.0) + 0.1
        return super().predict(batch) / (1.0 + self.seen)


class ByPosition(Honest):
    """The first question of a batch gets a bonus."""

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) * np.linspace(1.0, 0.9, len(batch))


class Flipped(Honest):
    """Higher means less sure."""

    def predict(self, batch: Batch) -> FloatArray:
        return 1.0 - super().predict(batch)


class GlobalNumpy(Honest):
    """Draws from numpy's global state."""

    def fit(self, train: Batch, ctx: Context) -> GlobalNumpy:
        super().fit(train, ctx)
        self.slope_ += float(np.random.rand())  # noqa: NPY002
        return self


class Seed32(Honest):
    """Gives the seed of 63 bits to what takes 32, as `random_state` of scikit-learn does."""

    def fit(self, train: Batch, ctx: Context) -> Seed32:
        super().fit(train, ctx)
        self.slope_ += float(np.random.RandomState(ctx.seed).rand())
        return self


class GlobalTorch(Honest):
    """Seeds torch globally: reproducible, at the cost of everyone else."""

    def fit(self, train: Batch, ctx: Context) -> GlobalTorch:
        super().fit(train, ctx)
        torch.manual_seed(ctx.seed)
        self.slope_ += float(torch.rand(1))
        return self


class GlobalRandom(Honest):
    """Draws from the standard library's global state."""

    def predict(self, batch: Batch) -> FloatArray:
        random.random()
        return super().predict(batch)


class Undeclared(Honest):
    """Looks whether there are choice logits as well."""

    def predict(self, batch: Batch) -> FloatArray:
        with contextlib.suppress(ContractError):
            batch[ChoiceLogits()]
        return super().predict(batch)


class UndeclaredInFit(Honest):
    """Learns from hidden states that it never asked for."""

    def fit(self, train: Batch, ctx: Context) -> UndeclaredInFit:
        self.mean_ = float(train[Hidden()].values.mean())
        return self


class DeclaredForPredictOnly(Honest):
    """Reads in fit what it declared for predict alone; a run would not have it there."""

    needs = Needs(predict=frozenset({QueryLogits()}))

    def fit(self, train: Batch, ctx: Context) -> DeclaredForPredictOnly:
        self._odds(train)
        super().fit(train, ctx)
        return self


class UndeclaredAndSilent(Honest):
    """Tries hidden states in fit, and goes on without."""

    def fit(self, train: Batch, ctx: Context) -> UndeclaredAndSilent:
        with contextlib.suppress(ContractError):
            train[Hidden()]
        super().fit(train, ctx)
        return self


class Peeking(Honest):
    """Would like to know the label."""

    def predict(self, batch: Batch) -> FloatArray:
        try:
            return batch.correct.astype(np.float64)
        except Exception:  # noqa: BLE001
            return super().predict(batch)


class WritesInPlace(Honest):
    """Centres the logits where they lie."""

    def predict(self, batch: Batch) -> FloatArray:
        z = batch[QueryLogits()]
        z -= 1.0
        return super().predict(batch)


class WritesByForce(Honest):
    """Unlocks the array first."""

    def fit(self, train: Batch, ctx: Context) -> WritesByForce:
        z = train[QueryLogits()]
        z.flags.writeable = True
        z += 1.0
        z.flags.writeable = False
        super().fit(train, ctx)
        return self


class Logit(Honest):
    """Gives log odds and calls them confidences."""

    def predict(self, batch: Batch) -> FloatArray:
        return self.slope_ * self._odds(batch)


class Decision(Honest):
    """Gives truth values."""

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) > 0.5


class Column(Honest):
    """Gives (n, 1)."""

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch)[:, None]


class Squeezed(Honest):
    """Loses the axis of a batch of one."""

    def predict(self, batch: Batch) -> FloatArray:
        return np.asarray(np.squeeze(super().predict(batch)))


class NotANumber(Honest):
    """Divides zero by zero."""

    def predict(self, batch: Batch) -> FloatArray:
        return np.full(len(batch), np.nan)


class WorkingInit(Honest):
    """Prepares arrays when it is made."""

    def __init__(self, steps: int = 20) -> None:
        super().__init__(steps)
        self.table = np.zeros(steps)


class RenamingInit(Honest):
    """Stores something else than it was given."""

    def __init__(self, steps: int = 20) -> None:
        super().__init__(steps + 1)


class Unsaved(Honest):
    """Keeps what it learned under a name that is not saved."""

    def fit(self, train: Batch, ctx: Context) -> Unsaved:
        super().fit(train, ctx)
        self.offset = 0.3
        return self

    def predict(self, batch: Batch) -> FloatArray:
        return np.clip(super().predict(batch) + self.offset, 0.0, 1.0)


class ForgetsToReturn(Honest):
    """Returns another instance from fit."""

    def fit(self, train: Batch, ctx: Context) -> ForgetsToReturn:
        super().fit(train, ctx)
        other = type(self)(self.steps)
        other.slope_ = self.slope_
        return other


class ChangesArguments(Honest):
    """Counts its steps down."""

    def fit(self, train: Batch, ctx: Context) -> ChangesArguments:
        super().fit(train, ctx)
        self.steps -= 1
        return self


class NeverUnfitted(Honest):
    """Has an answer before it learned anything."""

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) if hasattr(self, "slope_") else np.full(len(batch), 0.5)


class BadReference(Honest):
    """Cites the web."""

    reference = "https://arxiv.org/abs/2207.05221"


class BadPreset(Honest):
    """Has a preset that it can't be made from."""

    presets: ClassVar[Any] = {"fixed": {"stepps": 3}}


class BadSmall(Honest):
    """Names an argument that there is not."""

    small: ClassVar[Any] = {"stepps": 3}


class UnknownException(Honest):
    """Excuses itself from a rule that does not exist."""

    expected_failures: ClassVar[Any] = {"subset_invarance": "typo"}


class GoldInNeeds(Honest):
    """Would like to know which options are wrong."""

    needs = Needs(fit=Honest.needs.fit, predict=frozenset({QueryLogits(), TokenIds(Of.WRONG)}))


class GoldByArguments(Honest):
    """Declares nothing of the kind and reads it in one preset."""

    presets: ClassVar[Any] = {"paper": {"steps": 20}, "fixed": {"steps": 30}}

    def reads(self) -> Needs:
        told: set[Any] = {Hidden(at=At.GOLD_PREDICTING)} if self.steps > 20 else set()
        return Needs(fit=self.needs.fit, predict=self.needs.predict | told)


class LearnsOnTest(Honest):
    """Learns the labels of what it predicts."""

    fit_on = "test"


class SearchesSignals(Honest):
    """Would choose on validation what it reads."""

    search: ClassVar[Any] = {"steps": Times(0.1, 10.0)}

    def reads(self) -> Needs:
        more = frozenset({Hidden()}) if self.steps > 40 else frozenset()
        return Needs(self.needs.fit | more, self.needs.predict | more)


class SearchesTooFar(Honest):
    """Refuses values that its own search draws."""

    search: ClassVar[Any] = {"steps": Times(0.1, 10.0)}

    def __init__(self, steps: int = 20) -> None:
        if steps < 10:
            raise ValueError(f"{steps} steps")
        self.steps = steps


class SearchesNothingOfIts(Honest):
    """Declares a constant that it does not have."""

    search: ClassVar[Any] = {"stepps": Times(0.1, 10.0)}


class Nowhere(Honest):
    """Skips everything."""

    def skip(self, facts: RunFacts) -> str | None:
        return "not today"


class Undocumented(Honest):
    __doc__ = None


@pytest.mark.parametrize(
    ("plugin", "rule", "words"),
    [
        (BatchScaling, "subset_invariance", "of 50 questions alone: they differ by up to"),
        (RunningMean, "subset_invariance", "they differ by up to"),
        (ByPosition, "order_invariance", "they differ by up to"),
        (Flipped, "orientation", "expected an AUROC above 0.7"),
        (GlobalNumpy, "reproducible", "two fits with the same ctx.seed"),
        (GlobalNumpy, "global_randomness", "the global state of numpy was changed"),
        (Seed32, "values", "Seed must be between 0 and 2**32 - 1"),
        (GlobalTorch, "global_randomness", "the global state of torch was changed"),
        (GlobalRandom, "global_randomness", "the global state of random was changed"),
        (Undeclared, "declared_reads", "predict read ChoiceLogits(), which needs does not declare for it"),
        (UndeclaredInFit, "declared_reads", "was read but not declared in needs (declared: QueryLogits())"),
        (DeclaredForPredictOnly, "declared_reads", "QueryLogits() was read but not declared in needs (declared: none)"),
        (UndeclaredAndSilent, "declared_reads", "fit read Hidden()"),
        (Peeking, "no_labels_in_predict", "predict read batch.correct"),
        (WritesInPlace, "inputs_not_written", "copy it first"),
        (WritesByForce, "inputs_not_written", "QueryLogits() was written to"),
        (Logit, "values", "expected values within [0, 1], got"),
        (Decision, "values", "expected numbers, got bool; give how sure it is and not the decision"),
        (Column, "values", "expected shape (1,), got (1, 1); use .ravel()"),
        (Squeezed, "values", "expected shape (1,), got ()"),
        (NotANumber, "values", "expected numbers, got NaN in 1 of 1"),
        (WorkingInit, "init_only_stores", "__init__ also sets ['table']"),
        (RenamingInit, "init_only_stores", "expected the arguments ['steps'] to be stored as they are"),
        (Unsaved, "save_load", "AttributeError"),
        (ForgetsToReturn, "parameters_unchanged", "expected fit to return self"),
        (ChangesArguments, "parameters_unchanged", "the arguments ['steps'] have changed"),
        (NeverUnfitted, "unfitted_raises", "predict gave values without fit"),
        (OneSided, "one_class", "all labels True, yet the confidences lie between"),
        (BadReference, "reference", "expected arXiv:1234.56789 or doi:10.1234/name"),
        (BadPreset, "presets", "preset 'fixed' gives ['stepps']"),
        (BadSmall, "presets", "small gives ['stepps'], which __init__ does not take"),
        (UnknownException, "declarations", "expected_failures names ['subset_invarance']"),
        (GoldInNeeds, "no_gold_in_predict", "predict would read TokenIds(of=Of.WRONG), which tells the right answer"),
        (GoldByArguments, "no_gold_in_predict", "Hidden(at=At.GOLD_PREDICTING), which tells the right answer"),
        (LearnsOnTest, "no_gold_in_predict", "fit_on: expected one of train, validation, got 'test'"),
        (SearchesSignals, "search", "reads other signals than without; search constants of training alone"),
        (SearchesTooFar, "search", "which search allows: ValueError:"),
        (SearchesNothingOfIts, "search", "search names 'stepps', which __init__ does not take"),
        (Nowhere, "runs_somewhere", "it skips choice questions (not today)"),
        (Undocumented, "docstring", "the class has no docstring"),
    ],
)  # fmt: skip
def test_broken_method_is_caught_by_name(plugin: type[ConfidenceMethod], rule: str, words: str) -> None:
    broken = _broken_rules(plugin)
    assert rule in broken, broken
    assert broken[rule].startswith(f"honest: rule {rule!r} (")
    assert words in broken[rule]


@pytest.mark.parametrize("plugin", [BatchScaling, Flipped, GlobalTorch, Peeking, WorkingInit, NeverUnfitted])
def test_only_the_broken_rules_are_reported(plugin: type[ConfidenceMethod]) -> None:
    allowed = {
        BatchScaling: {"subset_invariance"}, Flipped: {"orientation"}, GlobalTorch: {"global_randomness"},
        Peeking: {"no_labels_in_predict"}, WorkingInit: {"init_only_stores"}, NeverUnfitted: {"unfitted_raises"},
    }  # fmt: skip
    assert set(_broken_rules(plugin)) <= allowed[plugin]


# --- dishonest by a little, and honest ones that round ----------------------------------------------------------------


class BatchDependent(Honest):
    """Is less sure the fewer questions a batch has."""

    amount: ClassVar[float]

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) * (1.0 - self.amount / len(batch))


class PlaceDependent(Honest):
    """Is less sure the later a question comes in its batch."""

    amount: ClassVar[float]

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) * np.linspace(1.0, 1.0 - self.amount, len(batch))


class SavesRounded(Honest):
    """Loses digits of what it learned when it is saved."""

    amount: ClassVar[float]

    def save(self, folder: Path) -> None:
        slope, self.slope_ = self.slope_, self.slope_ * (1.0 + self.amount)
        super().save(folder)
        self.slope_ = slope


class CountsFits(Honest):
    """Learns something else each time."""

    amount: ClassVar[float]
    fits: ClassVar[int] = 0

    def fit(self, train: Batch, ctx: Context) -> CountsFits:
        super().fit(train, ctx)
        type(self).fits += 1
        self.slope_ += self.amount * self.fits
        return self


class NearlyFlat(Honest):
    """Tells answers apart a little, though all that it learned from were right, or wrong."""

    amount: ClassVar[float]
    takes_one_class = True

    def fit(self, train: Batch, ctx: Context) -> NearlyFlat:
        super().fit(train, ctx)
        if len(set(train.correct)) == 1:
            self.slope_ = self.amount
        return self


@pytest.mark.parametrize(
    ("plugin", "amount", "rules"),
    [
        (BatchDependent, 1e-3, {"subset_invariance"}),
        (BatchDependent, 1e-4, {"subset_invariance"}),
        (BatchDependent, 1e-6, set()),
        (PlaceDependent, 1e-4, {"order_invariance", "subset_invariance"}),
        (PlaceDependent, 1e-6, set()),
        (SavesRounded, 1e-6, {"save_load"}),
        (CountsFits, 1e-6, {"reproducible"}),
        (NearlyFlat, 1e-4, {"one_class"}),
        (NearlyFlat, 1e-7, set()),
    ],
)
def test_rules_hold_but_for_rounding(plugin: type[Honest], amount: float, rules: set[str]) -> None:
    """Sums in float32 round by a millionth; what is saved, and a second fit, are the very same."""
    made = type(plugin.__name__, (plugin,), {"__doc__": plugin.__doc__, "amount": amount})
    assert set(_broken_rules(made)) == rules


@pytest.mark.parametrize("size", [1e-3, 1e3])
@pytest.mark.parametrize(("amount", "rules"), [(1e-4, {"subset_invariance"}), (1e-6, set())])
def test_rounding_of_scores_is_measured_by_their_size(size: float, amount: float, rules: set[str]) -> None:
    class Score(ConfidenceMethod):
        """Log odds in units of its own."""

        name = "score"
        reference = "arXiv:2207.05221"
        needs = Needs(predict=frozenset({QueryLogits()}))
        output = "score"

        def predict(self, batch: Batch) -> FloatArray:
            z = batch[QueryLogits()].astype(np.float64)
            return size * (z[:, 1] - z[:, 0]) * (1.0 - amount / len(batch))

    assert set(_broken_rules(Score)) == rules


# --- expected failures ------------------------------------------------------------------------------------------------


class Excused(Flipped):
    """Breaks a rule and says why."""

    expected_failures: ClassVar[Any] = {"orientation": "measures doubt, by definition"}


class NoLongerExcused(Honest):
    """Says that it breaks a rule, and does not."""

    expected_failures: ClassVar[Any] = {"orientation": "measures doubt, by definition"}


def test_expected_failure_passes_and_a_stale_one_fails() -> None:
    assert _broken_rules(Excused) == {}
    broken = _broken_rules(NoLongerExcused)
    assert set(broken) == {"orientation"}
    assert "no longer needed" in broken["orientation"]
    assert "measures doubt, by definition" in broken["orientation"]


# --- how methods are made ---------------------------------------------------------------------------------------------


class Settings(Honest):
    """Has all kinds of arguments."""

    presets: ClassVar[Any] = {"fixed": {"layers": (8, 4), "epochs": 3}}
    small: ClassVar[Any] = {"steps": 20, "epochs": 2}

    def __init__(
        self, layers: tuple[int, ...], steps: int = 10_000, epochs: int = 1, learning_rate: float = 1e-4
    ) -> None:
        self.layers, self.steps, self.epochs, self.learning_rate = layers, steps, epochs, learning_rate


def test_a_method_is_made_with_its_small_settings_then_its_first_preset_then_its_defaults() -> None:
    made = MakeMethod(Settings)()
    assert made.params() == {"layers": (8, 4), "steps": 20, "epochs": 2, "learning_rate": 1e-4}


class ChoiceOnly(Honest):
    """Is not for open questions."""

    def skip(self, facts: RunFacts) -> str | None:
        return "open answers" if facts.format is Format.OPEN else None


def test_skipped_formats_are_not_checked() -> None:
    assert {make.format for make, _ in checks_for(ChoiceOnly) if isinstance(make, MakeMethod)} == {Format.CHOICE}


# --- constants of a paper ---------------------------------------------------------------------------------------------

FIELDS = """@dataclass(kw_only=True, eq=False)
class Rated(ConfidenceMethod):
    rate: float = 0.5
    \"\"\"CHOSEN: it converges in all folds.\"\"\"


@method("margin-of-fields")
@dataclass(kw_only=True, eq=False)
class Margin(Rated):"""
BY_HAND = """    def __init__(self, steps: int = 500, rate: float = 0.5) -> None:
        self.steps = steps
        self.rate = rate
"""


@pytest.mark.parametrize(
    ("below", "ok"), [('"""Paper, table 7."""', True), ('"""Steps."""', False), ("", False), ("other = 3", False)]
)
def test_method_that_is_a_dataclass_needs_a_source_below_each_field(tmp_path: Path, below: str, *, ok: bool) -> None:
    text = MARGIN.replace('@method("margin")\nclass Margin(ConfidenceMethod):', FIELDS)
    text = text.replace(BY_HAND, f"    steps: int = 500\n    {below}\n")
    path = tmp_path / "margin_of_fields.py"
    path.write_text(text.replace("import numpy as np", "from dataclasses import dataclass\n\nimport numpy as np", 1))
    results = check_plugin(path)
    assert len(results) == 22
    broken = [r.message for r in results if not r.ok]
    assert (broken == []) is ok
    assert all("Margin.steps has no source below it" in message and "CHOSEN" in message for message in broken)


# --- the planted truth ------------------------------------------------------------------------------------------------

EVERYTHING = (
    Hidden(), Hidden(0.5), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_END), Hidden(0.75, At.PROMPT_END),
    TokenIds(), TokenIds(Of.PROMPT), TokenIds(Of.QUERY), ChoiceLogits(), QueryLogits(), Unembedding(),
)  # fmt: skip


@pytest.mark.parametrize("fmt", Format)
def test_planted_signals_agree_with_each_other(fmt: Format) -> None:
    batch = planted(EVERYTHING, 500, seed=5, fmt=fmt)
    ids, states, head = batch[TokenIds()], batch[Hidden()], batch[Unembedding()]
    assert set(ids.lengths) == ({1} if fmt is Format.CHOICE else {1, 2, 3, 4, 5})
    assert np.array_equal(ids.offsets, states.offsets)
    assert np.array_equal(states.values[states.offsets[:-1]], batch[Hidden(1.0, At.PROMPT_END)])
    logits = head.logits(torch.tensor(states.values)).numpy()  # (sum of t_i, v)
    assert (logits.argmax(axis=1) == ids.values).mean() > 0.85
    shown = np.isfinite(batch[ChoiceLogits()])
    first = logits[ids.offsets[:-1], :LETTERS]
    np.testing.assert_allclose(batch[ChoiceLogits()][shown], first[shown], atol=1e-5)
    assert 0.02 < (~shown).any(axis=1).mean() < 0.3
    assert fmt is Format.OPEN or shown[np.arange(500), ids.values].all(), "an answer is a letter that is not shown"
    for i in (0, 499):
        whole = batch[TokenIds(Of.QUERY)][i]
        start = np.concatenate([batch[TokenIds(Of.PROMPT)][i], ids[i]])
        assert np.array_equal(whole[: len(start)], start)
        assert len(whole) > len(start)


@pytest.mark.parametrize(
    ("signal", "score"),
    [
        (QueryLogits(), lambda z: z[:, 1] - z[:, 0]),
        (ChoiceLogits(), lambda z: np.sort(z, axis=1)[:, -1] - np.sort(z, axis=1)[:, -2]),
        (Hidden(), lambda h: np.linalg.norm(h.values, axis=1)),
    ],
)
def test_truth_can_be_seen_in_each_signal(signal: Any, score: Any) -> None:
    batch = planted([signal], 1000, seed=6)
    assert roc_auc_score(batch.correct, score(batch[signal])) > 0.85


@pytest.mark.parametrize("signal", [Hidden(0.5, At.ANSWER_END), Hidden(0.75), Hidden(0.25, At.PROMPT_END)])
def test_truth_learned_on_one_batch_holds_on_another(signal: Hidden) -> None:
    def read(batch: Batch) -> Any:
        column = batch[signal]
        return column if signal.at is not At.ANSWER_PREDICTING else column.values

    train, test = planted([signal], 500, seed=1), planted([signal], 500, seed=2)
    direction = read(train)[train.correct].mean(axis=0) - read(train)[~train.correct].mean(axis=0)
    assert roc_auc_score(test.correct, read(test) @ direction) > 0.85


# --- tasks ------------------------------------------------------------------------------------------------------------


def _question(i: int, split: str, gold: int = 0) -> Question:
    return Question(f"t/{split}/{i}", "s", f"q{i}?", ("x", "y"), gold)


class Fine(Task):
    """Four questions and five exemplars."""

    name = "fine"
    format = Format.CHOICE
    card = TaskCard(
        license="MIT", version=1, splits={"test": "test", "dev": "dev"}, sizes={"test": 4, "dev": 5}, options=(2, 2),
        why="small",
    )  # fmt: skip
    style = PromptStyle(header="About {label}.", footer="Now.", context="{text}\n{options}")

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([_question(i, split, i % 2) for i in range(self.card.sizes[split])])


class TooFew(Fine):
    """Loses a question."""

    def questions(self, split: Split) -> Iterator[Question]:
        return iter(list(super().questions(split))[:-1])


class SameIds(Fine):
    """Uses one id in two splits."""

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([_question(i, "all", i % 2) for i in range(self.card.sizes[split])])


_DRAWS = random.Random(0)


class Unstable(Fine):
    """Shuffles at each reading."""

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([_question(_DRAWS.randrange(10**9), split, i % 2) for i in range(self.card.sizes[split])])


class HiddenLabels(Fine):
    """The first option is always right."""

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([_question(i, split) for i in range(self.card.sizes[split])])


class GoldOutside(Fine):
    """Counts options from one."""

    def questions(self, split: Split) -> Iterator[Question]:
        return iter([_question(i, split, i % 2 + 1) for i in range(self.card.sizes[split])])


class NoOptions(Fine):
    """Forgets to show the options."""

    style = PromptStyle(header="About {label}.", footer="Now.", context="{text}")


class NoOrigins(Fine):
    """Can't say where its rows come from."""

    def origins(self, split: Split) -> Any:
        raise SystemExit("who knows")


class NumberAsProvenance(Fine):
    """Gives a number where a text must be."""

    def provenance(self, split: Split) -> Any:
        return {"rows": 4}


@dataclass
class _Pair:
    plugin: type[Task]
    rule: str
    words: str


@pytest.mark.parametrize(
    "case",
    [
        _Pair(TooFew, "sizes", "test: expected 4 questions, got 3"),
        _Pair(SameIds, "ids", "4 ids occur more than once, e.g. 't/all/0'"),
        _Pair(Unstable, "ids", "a second reading gave other questions"),
        _Pair(HiddenLabels, "letters", "never right: ['b']"),
        _Pair(GoldOutside, "gold", "t/test/1: expected a gold index from 0 to 1, got 2"),
        _Pair(NoOrigins, "origins", "SystemExit: who knows"),
        _Pair(NumberAsProvenance, "provenance", "test: rows: expected text, got 4"),
        _Pair(NoOptions, "style", "{options} in style.context"),
    ],
    ids=lambda case: case.plugin.__name__,
)
def test_broken_task_is_caught_by_name(case: _Pair) -> None:
    broken = _broken_rules(case.plugin)
    assert case.words in broken.get(case.rule, ""), broken


def test_fine_task_passes() -> None:
    assert _broken_rules(Fine) == {}


class OneShown(Fine):
    """Has an exemplar only."""

    card = TaskCard(
        license="MIT", version=1, splits={"test": "test", "dev": "dev"}, sizes={"test": 4, "dev": 1}, options=(2, 2),
        why="small",
    )  # fmt: skip


def test_few_exemplars_are_a_remark_as_a_run_goes_on_with_them() -> None:
    assert _broken_rules(OneShown) == {}
    remarks = {check.__name__: check(make) for make, check in checks_for(OneShown)}
    told = "1 subject has fewer than 5 exemplars, e.g. 's' 1; a run goes on with them and says so"
    assert {name: remark for name, remark in remarks.items() if remark} == {"prompts": told}


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("self.slope_ *", "{}['a'] *", "KeyError: 'a'"),
        ("batch[ChoiceLogits()]", "batch[Hidden()]", "Hidden() was read but not declared in needs"),
    ],
)
def test_what_a_file_breaks_is_told_with_its_line(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    path = tmp_path / "broken.py"
    text = MARGIN.replace(right, wrong).replace("import Batch", "import Hidden, Batch")
    path.write_text(text)
    line = 1 + text[: text.index(wrong)].count("\n")
    messages = [result.message for result in check_plugin(path) if told in result.message]
    assert messages
    assert any(message.endswith(f"(broken.py:{line})") or f"(broken.py:{line}) (" in message for message in messages)


# --- by name ----------------------------------------------------------------------------------------------------------


def test_plugin_can_be_checked_by_name() -> None:
    results = check_plugin("mmlu-choice")  # without rows: what stands in the class
    assert {r.name for r in results} == {f"mmlu-choice {rule}" for rule in ("docstring", "card", "style", "origins")}
    assert all(r.ok for r in results)


def test_unknown_name_is_told_with_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"got 'mmlu-choise'\. Did you mean 'mmlu-choice'\?"):
        check_plugin("mmlu-choise")


def test_what_is_read_is_what_an_instance_says_as_in_a_run() -> None:
    @dataclass(kw_only=True, eq=False)
    class OfSamples(ConfidenceMethod):
        """Share of the samples that agree."""

        name: ClassVar[str] = "of-samples"
        reference: ClassVar[str] = "arXiv:2203.11171"
        needs: ClassVar[Needs] = Needs()

        n: int = 5
        """Samples. CHOSEN: for the test."""

        def reads(self) -> Needs:
            return Needs(predict=frozenset({SampleAgreement(self.n)}))

        def predict(self, batch: Batch) -> FloatArray:
            """Share of agreeing samples, shape (n,)."""
            return np.asarray(batch[SampleAgreement(self.n)].mean(axis=1), dtype=np.float64)

    failed = {check.__name__ for make, check in checks_for(OfSamples) if _fails(check, make)}

    assert failed == set()


def _fails(check: Any, make: MakeMethod) -> bool:
    try:
        check(make)
    except AssertionError:
        return True
    return False
