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
from bench.run.fitting import Fitted, Fitter, _load_fit, _save_fit, training_history
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from bench.training.trainer import AdapterTrainer, DeferredTrainingError
from tests.fixtures.rivers import Rivers

STATE = Hidden(1.0, At.PROMPT_END)


class Slope(ConfidenceMethod):
    """One number, learned in steps."""

    name = "slope"
    needs = Needs(fit=frozenset({STATE}), predict=frozenset({STATE}))

    def fit(self, train: Batch, ctx: Context) -> Slope:
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


def labelled(seed: int, n: int = 80) -> Batch:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 1)).astype(np.float32)
    return Batch([str(i) for i in range(n)], {STATE: states}, states[:, 0] + rng.normal(size=n) > 0)


def fitted() -> tuple[Fitted, Batch, Batch]:
    train, held = labelled(0), labelled(1)
    ctx = Context(seed=0, validation=held)
    method = Slope().fit(train, ctx)
    training, curve = training_history(method, ctx, train, held)
    return Fitted(method, training, LabelsSeen(80, 80), curve, 1.5), train, held


def test_the_account_is_that_of_the_kept_step() -> None:
    found, train, held = fitted()
    (stage,) = found.training.stages
    assert found.training.validation_nll == pytest.approx(min(stage.losses))
    assert found.training.train_nll == pytest.approx(validation_loss(found.method.predict(train), train.correct))
    rate = train.correct.mean()
    entropy = -np.mean(np.where(held.correct, np.log(rate), np.log(1 - rate)))
    assert found.training.base_rate_nll == pytest.approx(entropy)
    assert found.curve is not None
    assert found.curve.shape == (len(stage.steps), 80)
    assert stage.epochs == stage.kept * 0.5
    assert found.complaint() is None


def test_a_stored_fit_comes_back_whole(tmp_path: Path) -> None:
    found, _, held = fitted()
    entry = Store(tmp_path).put("fits", "ab" * 32, {}, lambda folder: _save_fit(found, folder), seconds=1.5)
    again = _load_fit(Slope(), entry)
    assert (again.training, again.labels, again.seconds) == (found.training, found.labels, 1.5)
    assert np.array_equal(again.curve, found.curve)  # type: ignore[arg-type]
    assert np.array_equal(again.method.predict(held), found.method.predict(held))


@pytest.mark.parametrize(
    ("own", "constant", "complains"), [(0.7, 0.6, True), (0.6, 0.6, False), (None, 0.6, False), (0.7, None, False)]
)
def test_what_validation_already_shows_is_said(own: float | None, constant: float | None, *, complains: bool) -> None:
    training = Training((TrainingStage("", 1, 1, 1, 1.0),), None, own, constant)
    complaint = Fitted(Slope(), training, LabelsSeen(), None, 0.0).complaint()
    assert (complaint is not None) is complains
    if complaint is not None:
        assert "worse than a constant (negative log-likelihood 0.700 against 0.600)" in complaint


def test_validation_answers_have_what_is_read_to_predict_and_free_ids_but_no_own_adapter() -> None:
    query, own = TokenIds(Of.QUERY), QueryLogits(Adapter.OWN)
    wrong, gold = Hidden(1.0, At.WRONG_PREDICTING), TokenIds(Of.GOLD)
    assert validation_signals(Needs(frozenset({query, wrong, gold}), frozenset({own, STATE}))) == {query, STATE}


def test_a_member_of_an_ensemble_does_not_speak_for_it() -> None:
    held = labelled(1)

    class Two(Slope):
        def fit(self, train: Batch, ctx: Context) -> Two:
            super().fit(train, ctx)
            self.slope_ = self.slope_ / 2 + 1
            return self

    ctx = Context(seed=0, validation=held)
    method = Two().fit(labelled(0), ctx)
    training, curve = training_history(method, ctx, labelled(0), held)
    assert (len(training.stages), curve) == (1, None)
    assert training.validation_nll == pytest.approx(validation_loss(method.predict(held), held.correct))


def test_a_training_that_diverges_keeps_its_best_and_tells_no_nan() -> None:
    held = labelled(1)

    class Wild(Slope):
        def predict(self, batch: Batch) -> FloatArray:
            return super().predict(batch) if self.slope_ < 1 else np.full(len(batch), np.nan)

    ctx = Context(seed=0, validation=held)
    method = Wild().fit(labelled(0), ctx)
    training, curve = training_history(method, ctx, labelled(0), held)
    stages = training.stages
    assert stages[0].losses[-1] is None
    assert method.slope_ < 1
    assert curve is not None
    assert json.dumps([stage.losses for stage in stages], allow_nan=False)
    assert training.validation_nll == min(loss for loss in stages[0].losses if loss is not None)


# --- through the store ------------------------------------------------------------------------------------------------


class Counting(Slope):
    """Counts its fits."""

    name = "counting"
    fits = 0

    def fit(self, train: Batch, ctx: Context) -> Counting:
        type(self).fits += 1
        super().fit(train, ctx)
        return self


class Forgetful(Counting):
    """Can't be loaded."""

    name = "forgetful"

    def load(self, folder: Path) -> Forgetful:
        raise ValueError("no such number")


def fitter(method: type[ConfidenceMethod], folder: Path, seed: int = 0, device: str = "cpu") -> Fitter:
    """A fitter whose splits have random states instead of those of a model."""
    resolved: Any = SimpleNamespace(
        new_method=lambda _name, _configuration=0: method(), protocol=FIXED, training_budget=None,
        training_of=lambda _name: {},
    )  # fmt: skip
    lm: Any = SimpleNamespace(files=SimpleNamespace(weights="f"), device=device, spec=specs.resolve("tiny"))
    asking = SimpleNamespace(verdict_ids=np.array([1, 2]))
    batches: Any = SimpleNamespace(
        batch=lambda split_data, _signals, *, labels: labelled(len(split_data.where.split)),
        reader=SimpleNamespace(prompt_settings=lambda _reading: asking),
    )
    store = Store(folder)
    store.prepare()
    return Fitter(resolved, lm, store, batches, Silent(), seed)


def split(name: Any, left_out: frozenset[str] = frozenset()) -> SplitData:
    return SplitData(TaskSplit("rivers", name), Rivers(None), [], [], left_out=left_out)  # type: ignore[arg-type]


def test_a_fit_is_made_once_and_told_alike(tmp_path: Path) -> None:
    before = Counting.fits
    first, again = (fitter(Counting, tmp_path).fit("m", split("train"), split("validation")) for _ in range(2))
    assert Counting.fits == before + 1
    assert (again.training, again.labels, again.seconds) == (first.training, first.labels, first.seconds)
    assert first.labels == LabelsSeen(validation=80)  # labels of training answers are never looked at


class Refitted(Counting):
    """Says that one kind of answers is enough."""

    name = "refitted"
    takes_one_class = True


@pytest.mark.parametrize("right", [True, False])
def test_a_method_is_not_fitted_to_answers_of_one_kind(tmp_path: Path, *, right: bool) -> None:
    batch = labelled(0)
    one = Batch(batch.ids, {STATE: batch[STATE]}, np.full(80, right))

    def fit(method: type[ConfidenceMethod]) -> Fitted:
        made = fitter(method, tmp_path)
        made.batches.batch = lambda *_, **__: one  # type: ignore[method-assign]
        return made.fit("m", split("train"), None)

    before, kind = Counting.fits, "right" if right else "wrong"
    with pytest.raises(UntrainableError, match=f"all 80 training answers are {kind}: there is nothing to learn"):
        fit(Counting)
    assert Counting.fits == before
    assert fit(Refitted).method.fitted()


def test_a_fit_belongs_to_the_kind_of_device_and_not_to_its_number(tmp_path: Path) -> None:
    before = Counting.fits
    for device in ("cuda", "cuda:1", "cuda:0", "cpu"):
        fitter(Counting, tmp_path, device=device).fit("m", split("train"), split("validation"))
    assert Counting.fits == before + 2


@pytest.mark.parametrize(
    ("learned", "validation", "seed"),
    [
        (split("train"), split("validation"), 1),
        (split("train"), None, 0),
        (split("train", frozenset({"q"})), split("validation"), 0),
        (split("train"), split("validation", frozenset({"q"})), 0),
    ],
)
def test_what_is_learned_from_other_answers_or_by_another_seed_is_another_fit(
    tmp_path: Path, learned: SplitData, validation: SplitData | None, seed: int
) -> None:
    fitter(Counting, tmp_path).fit("m", split("train"), split("validation"))
    before = Counting.fits
    fitter(Counting, tmp_path, seed).fit("m", learned, validation)
    assert Counting.fits == before + 1


@pytest.mark.parametrize("edited", [{"gold": 1}, {"choices": ("a", "c")}, {"text": "Which?"}], ids=str)
def test_a_fit_is_not_served_for_edited_questions(tmp_path: Path, edited: dict[str, Any]) -> None:
    """Answers, labels and all that is stored may stay the same bytes."""

    class Reads(Counting):
        name = "reads"
        fits = 0
        needs = Needs(fit=frozenset({STATE}), predict=frozenset({STATE}))

    question = Question("q", "s", "What?", ("a", "b"), 0)
    for asked in (question, question, replace(question, **edited)):
        fitter(Reads, tmp_path).fit("m", replace(split("train"), questions=[asked]), None)
    assert Reads.fits == 2


def test_a_stored_fit_that_cannot_be_loaded_is_made_again_and_noted(tmp_path: Path) -> None:
    before = Forgetful.fits
    for _ in range(2):
        fits = fitter(Forgetful, tmp_path)
        fits.fit("m", split("train"), None)
    assert Forgetful.fits == before + 2
    assert fits.store.notes == ["the stored fit of m can't be used (ValueError: no such number); it is fitted again"]


def test_a_stored_fit_stays_until_there_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitter(Counting, tmp_path).fit("m", split("train"), None)

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Counting, "load", fails)
        patched.setattr(Counting, "fit", fails)
        short = fitter(Counting, tmp_path)
        with pytest.raises(OSError, match="Too many"):
            short.fit("m", split("train"), None)
    assert "Too many open files" in short.store.notes[0]
    before = Counting.fits
    fitter(Counting, tmp_path).fit("m", split("train"), None)
    assert Counting.fits == before


class Unsaved(Slope):
    """Keeps what it learned where it is not saved."""

    name = "unsaved"
    shift = 0.0

    def fit(self, train: Batch, ctx: Context) -> Unsaved:
        super().fit(train, ctx)
        self.shift = 0.3
        return self

    def predict(self, batch: Batch) -> FloatArray:
        return np.clip(super().predict(batch) - self.shift, 0.0, 1.0)


def test_a_method_that_saves_less_than_it_learned_is_refused_and_not_stored(tmp_path: Path) -> None:
    fits = fitter(Unsaved, tmp_path)
    for validation in (split("validation"), None):
        with pytest.raises(ContractError, match=r"m gives other confidences once its fit is saved and loaded"):
            fits.fit("m", split("train"), validation)
    assert fits.store.entries("fits") == []


class Swallowing(Counting):
    """Goes on without the adapter that it was not given."""

    name = "swallowing"

    def fit(self, train: Batch, ctx: Context) -> Swallowing:
        with contextlib.suppress(Exception):
            assert ctx.train_adapter is not None
            ctx.train_adapter(loss="", examples={}, settings={})
        super().fit(train, ctx)
        return self


def test_a_fit_whose_adapter_is_not_there_yet_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(trainer: AdapterTrainer, **_: object) -> None:
        trainer.put_off = not trainer.waits
        if trainer.put_off:
            raise DeferredTrainingError("later")
        trainer.remote_seconds = 100.0

    monkeypatch.setattr(AdapterTrainer, "__call__", asked)
    fits = fitter(Swallowing, tmp_path)
    fits.puts_off = True
    with pytest.raises(DeferredTrainingError, match="swallowing is fitted when its adapter is there"):
        fits.fit("m", split("train"), None)
    assert fits.store.entries("fits") == []
    fits.puts_off = False
    assert 100.0 < fits.fit("m", split("train"), None).seconds < 110.0
    assert len(fits.store.entries("fits")) == 1


# --- a stored fit with an adapter -------------------------------------------------------------------------------------


class Adapted(Slope):
    """A method with an adapter, deep in what it learned."""

    name = "adapted"


ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json", "base_model.json", "training.json")


def with_adapter(store: Store) -> tuple[Fitter, Path]:
    """A fitter whose store has a fit of `adapted` under the key `f`, and the folder of its adapter."""

    def write(folder: Path) -> None:
        for name in ADAPTER_FILES:
            (folder / name).write_text(f"the bytes of {name}")

    store.prepare()
    trained = store.put("adapters", "ad" * 32, {}, write).folder
    found, _, _ = fitted()
    method = Adapted()
    method.slope_ = 1.0
    method.parts_ = {"first": AdapterRef(trained, fingerprint(trained))}
    whole = Fitted(method, found.training, found.labels, None, 1.5)
    store.put("fits", "f" * 64, {}, lambda folder: _save_fit(whole, folder), seconds=1.5)
    resolved: Any = SimpleNamespace(new_method=lambda _: Adapted())
    nothing: Any = None
    return Fitter(resolved, nothing, store, nothing, Silent(), 0), trained


def test_a_stored_fit_is_used_with_a_whole_adapter(tmp_path: Path) -> None:
    fitter, trained = with_adapter(Store(tmp_path))
    again = fitter._load_stored("adapted", Adapted, "f" * 64)
    assert again is not None
    assert again.method.fitted()["parts_"]["first"].folder == trained
    assert fitter.store.notes == []


@pytest.mark.parametrize("name", ADAPTER_FILES)
def test_a_damaged_adapter_is_not_used_and_said_once(tmp_path: Path, name: str) -> None:
    fitter, trained = with_adapter(Store(tmp_path))
    content = bytearray((trained / name).read_bytes())
    content[3] ^= 1
    (trained / name).write_bytes(bytes(content))
    assert fitter._load_stored("adapted", Adapted, "f" * 64) is None
    (note,) = fitter.store.notes
    assert f"cache entry adapters/{'ad' * 6} was damaged ({name} was altered" in note
    assert not trained.exists()


def test_the_adapter_of_another_cache_or_of_another_training_is_not_used(tmp_path: Path) -> None:
    _, trained = with_adapter(Store(tmp_path / "old"))
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    fitter, _ = with_adapter(Store(tmp_path / "new"))
    copied = replace(fitter, store=Store(tmp_path / "new"))
    assert copied._load_stored("adapted", Adapted, "f" * 64) is None
    assert copied.store.notes == [
        "the stored fit of adapted can't be used (its adapter is another one); it is fitted again"
    ]

    again, place = with_adapter(Store(tmp_path / "old"))
    shutil.rmtree(place)
    again.store.put("adapters", "ad" * 32, {}, lambda folder: [(folder / n).write_text("other") for n in ADAPTER_FILES])  # type: ignore[arg-type,return-value]
    assert again._load_stored("adapted", Adapted, "f" * 64) is None
    assert "its adapter is another one" in again.store.notes[0]
    assert trained.is_dir()
