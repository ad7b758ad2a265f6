"""What a fit leaves behind: the method, its account of training and labels, and what validation says against it."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.api import (
    Adapter,
    AdapterRef,
    At,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Hidden,
    Needs,
    Of,
    QueryLogits,
    Question,
    TokenIds,
    UntrainableError,
)
from bench.api.early_stopping import TrainingStage, validation_loss
from bench.api.methods import validation_signals
from bench.api.protocol import FIXED
from bench.data.splits import TaskSplit
from bench.model import specs
from bench.model.adapter import fingerprint
from bench.progress import Silent
from bench.results.row import LabelsSeen, Training
from bench.run import fitting
from bench.run.fitting import Fitted, Fitter, training_history
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from bench.training.trainer import AdapterTrainer, DeferredTrainingError
from tests.fixtures.rivers import Rivers

STATE = Hidden(1.0, At.PROMPT_END)


class Slope(ConfidenceMethod):
    """One number, learned in steps; counts its fits."""

    name = "slope"
    needs = Needs(fit=frozenset({STATE}), predict=frozenset({STATE}))
    fits = 0

    def fit(self, train: Batch, ctx: Context) -> Slope:
        type(self).fits += 1
        self.slope_ = 0.0
        stopping = ctx.early_stopping(64, epochs_per_step=0.5)
        for _ in stopping:
            self.slope_ += 0.1
            if stopping.due:
                stopping.record(self.predict, keep=lambda: self.slope_)
        self.slope_ = stopping.kept
        return self

    def predict(self, batch: Batch) -> FloatArray:
        return 1.0 / (1.0 + np.exp(-self.slope_ * np.asarray(batch[STATE][:, 0], dtype=np.float64)))


class Halved(Slope):
    """Learns more than its one training."""

    def fit(self, train: Batch, ctx: Context) -> Halved:
        super().fit(train, ctx)
        self.slope_ = self.slope_ / 2 + 1
        return self


class Wild(Slope):
    """Diverges."""

    def predict(self, batch: Batch) -> FloatArray:
        return super().predict(batch) if self.slope_ < 1 else np.full(len(batch), np.nan)


class Forgetful(Slope):
    """Can't be loaded."""

    def load(self, folder: Path) -> Forgetful:
        raise ValueError("no such number")


class Refitted(Slope):
    """Says that one kind of answers is enough."""

    takes_one_class = True


class Unsaved(Slope):
    """Keeps what it learned where it is not saved."""

    shift = 0.0

    def fit(self, train: Batch, ctx: Context) -> Unsaved:
        super().fit(train, ctx)
        self.shift = 0.3
        return self

    def predict(self, batch: Batch) -> FloatArray:
        return np.clip(super().predict(batch) - self.shift, 0.0, 1.0)


class Swallowing(Slope):
    """Goes on without the adapter that it was not given."""

    def fit(self, train: Batch, ctx: Context) -> Swallowing:
        with contextlib.suppress(Exception):
            assert ctx.train_adapter is not None
            ctx.train_adapter(loss="", examples={}, settings={})
        super().fit(train, ctx)
        return self


class Adapted(Slope):
    """Has an adapter, deep in what it learned."""

    adapter: AdapterRef

    def fit(self, train: Batch, ctx: Context) -> Adapted:
        super().fit(train, ctx)
        self.parts_ = {"first": self.adapter}
        return self


@pytest.fixture(autouse=True)
def _no_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in (Slope, *Slope.__subclasses__()):
        monkeypatch.setattr(method, "fits", 0)


def labelled(seed: int, n: int = 80) -> Batch:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 1)).astype(np.float32)
    return Batch([str(i) for i in range(n)], {STATE: states}, states[:, 0] + rng.normal(size=n) > 0)


TRAIN, HELD = labelled(len("train")), labelled(len("validation"))


def fitter(
    method: type[ConfidenceMethod], folder: Path, seed: int = 0, device: str = "cpu",
    verdicts: tuple[int, ...] = (1, 2), source: str | None = "begun",
) -> Fitter:  # fmt: skip
    """A fitter whose splits have random states instead of those of a model."""
    resolved: Any = SimpleNamespace(
        new_method=lambda _name, _configuration=0: method(), protocol=FIXED, training_budget=None,
        training_of=lambda _name: {}, sources={"m": source}, passed=frozenset(),
    )  # fmt: skip
    lm: Any = SimpleNamespace(
        files=SimpleNamespace(weights="f"), fingerprint="f", device=device, spec=specs.resolve("tiny"),
        chat=SimpleNamespace(gap="", blank=""),
    )  # fmt: skip
    asking = SimpleNamespace(verdict_ids=np.array(verdicts, dtype=np.int32))
    batches: Any = SimpleNamespace(
        batch=lambda split_data, _signals, *, labels: labelled(len(split_data.where.split)),
        reader=SimpleNamespace(prompt_settings=lambda _reading: asking),
    )
    store = Store(folder)
    store.prepare()
    return Fitter(resolved, lm, store, batches, Silent(), seed)


def split(name: Any, left_out: frozenset[str] = frozenset()) -> SplitData:
    return SplitData(TaskSplit("rivers", name), Rivers(None), [], [], left_out=left_out)  # type: ignore[arg-type]


def fitted(method: type[ConfidenceMethod], folder: Path) -> Fitted:
    return fitter(method, folder).fit("m", split("train"), split("validation"))


# --- the account of a training ----------------------------------------------------------------------------------------


def test_fit_tells_of_the_kept_step(tmp_path: Path) -> None:
    found = fitted(Slope, tmp_path)
    (stage,) = found.training.stages
    assert found.training.validation_nll == pytest.approx(min(stage.losses))
    assert found.training.train_nll == pytest.approx(validation_loss(found.method.predict(TRAIN), TRAIN.correct))
    rate = TRAIN.correct.mean()
    entropy = -np.mean(np.where(HELD.correct, np.log(rate), np.log(1 - rate)))
    assert found.training.base_rate_nll == pytest.approx(entropy)
    assert found.curve is not None
    assert found.curve.shape == (len(stage.steps), 80)
    assert stage.epochs == stage.kept * 0.5
    assert found.labels == LabelsSeen(validation=80)  # labels of training answers are never looked at
    assert found.complaint() is None


def test_fit_of_an_ensemble_has_no_curve(tmp_path: Path) -> None:
    found = fitted(Halved, tmp_path)
    assert (len(found.training.stages), found.curve) == (1, None)
    assert found.training.validation_nll == pytest.approx(validation_loss(found.method.predict(HELD), HELD.correct))


def test_fit_that_diverges_keeps_its_best(tmp_path: Path) -> None:
    found = fitted(Wild, tmp_path)
    (stage,) = found.training.stages
    assert stage.losses[-1] is None
    assert found.method.fitted()["slope_"] < 1
    assert found.curve is not None
    assert json.dumps(stage.losses, allow_nan=False)
    assert found.training.validation_nll == min(loss for loss in stage.losses if loss is not None)


@pytest.mark.parametrize(
    ("own", "constant", "complains"), [(0.7, 0.6, True), (0.6, 0.6, False), (None, 0.6, False), (0.7, None, False)]
)
def test_complaint_compares_with_a_constant(own: float | None, constant: float | None, *, complains: bool) -> None:
    training = Training((TrainingStage("", 1, 1, 1, 1.0),), None, own, constant)
    complaint = Fitted(Slope(), training, LabelsSeen(), None, 0.0).complaint()
    assert (complaint is not None) is complains
    assert complaint is None or "worse than a constant (negative log-likelihood 0.700 against 0.600)" in complaint


def test_validation_has_predicted_signals_and_free_ids_alone() -> None:
    query, own = TokenIds(Of.QUERY), QueryLogits(Adapter.OWN)
    wrong, gold = Hidden(1.0, At.WRONG_PREDICTING), TokenIds(Of.GOLD)
    assert validation_signals(Needs(frozenset({query, wrong, gold}), frozenset({own, STATE}))) == {query, STATE}


@pytest.mark.parametrize("right", [True, False])
def test_fit_needs_answers_of_both_kinds(tmp_path: Path, *, right: bool) -> None:
    one = Batch(TRAIN.ids, {STATE: TRAIN[STATE]}, np.full(80, right))

    def fit(method: type[ConfidenceMethod]) -> Fitted:
        made = fitter(method, tmp_path)
        made.batches.batch = lambda *_, **__: one  # type: ignore[method-assign]
        return made.fit("m", split("train"), None)

    told = f"all 80 training answers are {'right' if right else 'wrong'}: there is nothing to learn"
    with pytest.raises(UntrainableError, match=told):
        fit(Slope)
    assert Slope.fits == 0
    assert fit(Refitted).method.fitted()


# --- through the store ------------------------------------------------------------------------------------------------


def test_fit_is_made_once_and_comes_back_whole(tmp_path: Path) -> None:
    first, again = (fitted(Slope, tmp_path) for _ in range(2))
    assert Slope.fits == 1
    assert (again.training, again.labels, again.seconds) == (first.training, first.labels, first.seconds)
    assert np.array_equal(again.curve, first.curve)  # type: ignore[arg-type]
    assert np.array_equal(again.method.predict(HELD), first.method.predict(HELD))


LEFT_OUT = frozenset({"q"})


@pytest.mark.parametrize(
    ("learned", "validation", "options", "fits"),
    [
        (split("train"), split("validation"), {"device": "cpu:1"}, 1),  # the kind of device counts, not its number
        (split("train"), split("validation"), {"device": "cuda:1"}, 2),
        (split("train"), split("validation"), {"seed": 1}, 2),
        (split("train"), None, {}, 2),
        (split("train", LEFT_OUT), split("validation"), {}, 2),
        (split("train"), split("validation", LEFT_OUT), {}, 2),
    ],
)
def test_fit_belongs_to_answers_seed_and_device(
    tmp_path: Path, learned: SplitData, validation: SplitData | None, options: dict[str, Any], fits: int
) -> None:
    fitted(Slope, tmp_path)
    fitter(Slope, tmp_path, **options).fit("m", learned, validation)
    assert Slope.fits == fits


def test_fit_belongs_to_the_code_that_made_it(tmp_path: Path) -> None:
    """A file that is edited while a run goes on holds other code; code without a file is not told from other code."""
    for source in ("begun", "begun", "other", None, None):
        fitter(Slope, tmp_path, source=source).fit("m", split("train"), None)
    assert Slope.fits == 4


@pytest.mark.parametrize("edited", [{"gold": 1}, {"choices": ("a", "c")}, {"text": "Which?"}], ids=str)
def test_fit_is_not_served_for_edited_questions(tmp_path: Path, edited: dict[str, Any]) -> None:
    """Answers, labels and all that is stored may stay the same bytes."""
    question = Question("q", "s", "What?", ("a", "b"), 0)
    for asked in (question, question, replace(question, **edited)):
        fitter(Slope, tmp_path).fit("m", replace(split("train"), questions=[asked]), None)
    assert Slope.fits == 2


def test_fit_without_query_needs_no_verdicts(tmp_path: Path) -> None:
    """As of a model whose chat template opens a trace, which can't be asked."""
    fitter(Slope, tmp_path, verdicts=()).fit("m", split("train"), split("validation"))
    assert Slope.fits == 1


@pytest.mark.parametrize("signal", [TokenIds(Of.QUERY), TokenIds()], ids=repr)
def test_fit_on_former_query_prompts_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: Any) -> None:
    monkeypatch.setattr(Slope, "needs", Needs(fit=frozenset({STATE, signal}), predict=frozenset({STATE})))
    keys = []
    for continues in (True, False):
        made = fitter(Slope, tmp_path)
        made.batches.reader.prompts = SimpleNamespace(continues=lambda _task, own=continues: own)  # type: ignore[misc]
        keys.append(made._key_fields("m", split("train"), None, 0)[0])
    assert "query prompts" not in keys[0]
    assert (keys[0] != keys[1]) is (signal == TokenIds(Of.QUERY))


def test_fit_without_the_blank_of_answers_is_stale(tmp_path: Path) -> None:
    for blank in ("", " ", " "):
        made = fitter(Slope, tmp_path)
        made.lm.chat.blank = blank
        made.fit("m", split("train"), None)
    assert Slope.fits == 2


def test_fit_that_cannot_be_loaded_is_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        fits = fitter(Forgetful, tmp_path)
        fits.fit("m", split("train"), None)
    assert Forgetful.fits == 2
    assert fits.store.notes == ["the stored fit of m can't be used (ValueError: no such number); it is fitted again"]


def test_fit_that_is_made_again_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Slope, "save", lambda _, folder: (folder / "other.txt").write_text("of another version"))
        fitted(Slope, tmp_path)
    assert [fitted(Slope, tmp_path).seconds == 0, Slope.fits] == [False, 2]
    fitted(Slope, tmp_path)
    assert Slope.fits == 2


def test_fit_stays_until_there_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    fitted(Slope, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Slope, "load", fails)
        patched.setattr(Slope, "fit", fails)
        short = fitter(Slope, tmp_path)
        with pytest.raises(OSError, match="Too many"):
            short.fit("m", split("train"), split("validation"))
    assert "Too many open files" in short.store.notes[0]
    fitted(Slope, tmp_path)
    assert Slope.fits == 1


def test_fit_that_saves_too_little_is_refused(tmp_path: Path) -> None:
    fits = fitter(Unsaved, tmp_path)
    for validation in (split("validation"), None):
        with pytest.raises(ContractError, match=r"m gives other confidences once its fit is saved and loaded"):
            fits.fit("m", split("train"), validation)
    assert fits.store.entries("fits") == []


def test_fit_without_its_adapter_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(trainer: AdapterTrainer, **_: object) -> None:
        trainer.put_off = not trainer.waits
        if trainer.put_off:
            raise DeferredTrainingError("later")
        trainer.remote_seconds = 100.0

    monkeypatch.setattr(AdapterTrainer, "__call__", asked)
    fits = fitter(Swallowing, tmp_path)
    fits.puts_off = True
    with pytest.raises(DeferredTrainingError, match="slope is fitted when its adapter is there"):
        fits.fit("m", split("train"), None)
    assert fits.store.entries("fits") == []
    fits.puts_off = False
    assert 100.0 < fits.fit("m", split("train"), None).seconds < 110.0
    assert len(fits.store.entries("fits")) == 1


def test_adapter_s_training_loss_is_of_spread_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter's training records as many as validation has: every eighth of eighty."""
    sure = np.linspace(0.1, 0.9, 10)
    for name, value in (("trained_adapter", ""), ("load_training_stage", ""), ("confidences", {"train": sure})):
        monkeypatch.setattr(fitting, name, lambda _, value=value: value)
    found, _ = training_history(Slope(), Context(0), TRAIN, None)
    assert found.train_nll == pytest.approx(validation_loss(sure, TRAIN.correct[::8]))


# --- a stored fit with an adapter -------------------------------------------------------------------------------------

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json", "base_model.json", "training.json")


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an adapter in a store that has a fit with it."""
    folder = put_adapter(tmp_path / "old")
    monkeypatch.setattr(Adapted, "adapter", AdapterRef(folder, fingerprint(folder)), raising=False)
    fitted(Adapted, tmp_path / "old")
    return folder


def put_adapter(cache: Path, text: str = "bytes") -> Path:
    def write(folder: Path) -> None:
        for name in ADAPTER_FILES:
            (folder / name).write_text(text, encoding="utf-8")

    store = Store(cache)
    store.prepare()
    return store.put("adapters", "ad" * 32, {}, write).folder


def fitted_again(cache: Path) -> list[str]:
    """Notes of the store where the stored fit is asked for; the method is fitted again just where there are some."""
    again = fitter(Adapted, cache)
    again.fit("m", split("train"), split("validation"))
    assert Adapted.fits == 1 + len(again.store.notes)
    return again.store.notes


def test_adapter_that_is_whole_is_used(adapter: Path, tmp_path: Path) -> None:
    assert fitted_again(tmp_path / "old") == []
    assert fitted(Adapted, tmp_path / "old").method.fitted()["parts_"]["first"].folder == adapter


@pytest.mark.parametrize("name", ADAPTER_FILES)
def test_adapter_that_is_damaged_is_said_once(adapter: Path, tmp_path: Path, name: str) -> None:
    (adapter / name).write_text("other", encoding="utf-8")
    (note,) = fitted_again(tmp_path / "old")
    assert f"cache entry adapters/{'ad' * 6} was damaged ({name} was altered" in note
    assert not adapter.exists()


@pytest.mark.parametrize("copied", [True, False])
def test_adapter_of_another_cache_is_not_used(adapter: Path, tmp_path: Path, *, copied: bool) -> None:
    if copied:
        shutil.copytree(tmp_path / "old", tmp_path / "new")
    else:
        shutil.rmtree(adapter)
        put_adapter(tmp_path / "old", "other")
    assert fitted_again(tmp_path / ("new" if copied else "old")) == [
        "the stored fit of m can't be used (its adapter is another one); it is fitted again"
    ]
    assert adapter.is_dir()
