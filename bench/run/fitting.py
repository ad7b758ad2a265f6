"""Fit a method, or load the fit that an earlier run stored. A fit includes training losses and label counts."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import AdapterRef, Batch, ConfidenceMethod, Context, ContractError, FloatArray, Of, TokenIds
from bench.api.batch import labels_of
from bench.api.early_stopping import best_point, validation_loss
from bench.api.errors import reason_of
from bench.api.methods import outputs_of, refuse_one_class, validation_signals
from bench.api.signals import leaks_label
from bench.model.adapter import fingerprint
from bench.model.devices import device_kind
from bench.model.language_model import LanguageModel
from bench.model.specs import label_of
from bench.progress import DECISIONS, Progress
from bench.results.row import LabelsSeen, Training, Tuning
from bench.run.plan import trained_adapter
from bench.run.resolve import ResolvedRun
from bench.signals.batch_builder import BatchBuilder
from bench.signals.split_data import SplitData
from bench.store.decoding import decode_record
from bench.store.disk_cache import Entry, Store, key_of
from bench.store.files import write_json
from bench.store.usage import ADAPTERS, FITS
from bench.training.trainer import AdapterTrainer, DeferredTrainingError, Elsewhere, confidences, load_training_stage

Fresh = Callable[[], ConfidenceMethod]
"""Function that returns a new unfitted method with fixed constants."""
FEW = 20
"""If a fit used fewer validation labels than this, a large validation loss is not reported. If it used none, a large
loss is reported."""
_SAME = 1e-4
"""Largest difference of two confidences that count as equal."""
_ACCOUNT, _CURVE = "training.json", "curve.safetensors"
"""Names of the two files that are stored beside those of the method's `save`: losses, and confidences at
checkpoints."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """Fits of a method with several configurations; the one with the smallest validation loss was chosen."""

    account: Tuning
    """Validation loss and seconds of each configuration, for the result row."""
    fits: tuple[Fitted, ...]
    """Fits that have a validation loss, in the order in which their configurations were sampled."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted method, with losses, label counts and seconds of its fit."""

    method: ConfidenceMethod
    training: Training
    labels: LabelsSeen
    curve: FloatArray | None
    """`(points, m)`: confidences in the m validation answers at each checkpoint; `training_history` says when this is
    None."""
    seconds: float
    """Seconds that the fit took. For a method with several configurations, the sum over all of them."""
    tuned: Tuned | None = None
    """Fits of the configurations that validation chose among; None if there was no such choice."""

    def complaint(self) -> str | None:
        """Return a complaint if the validation loss is larger than that of a constant confidence; else None.

        The constant is the share of right training answers. There is also no complaint if both losses are equal when
        rounded to three decimals, or if the fit used at least one but fewer than `FEW` validation labels.
        """
        nll, constant = self.training.validation_nll, self.training.base_rate_nll
        if nll is None or constant is None or 0 < self.labels.validation < FEW:
            return None
        shown, constant_shown = f"{nll:.3f}", f"{constant:.3f}"
        if nll <= constant or shown == constant_shown:
            return None
        return (
            "on the validation answers its confidences are worse than a constant"
            f" (negative log-likelihood {shown} against {constant_shown})"
        )


@dataclass
class Fitter:
    """Fits the methods of a run on one model, and stores the fits."""

    resolved: ResolvedRun
    lm: LanguageModel
    store: Store
    batches: BatchBuilder
    progress: Progress
    seed: int
    """Seed of the run."""
    elsewhere: Elsewhere | None = None
    """Trains adapters on other machines; None if adapters are trained on this machine."""
    puts_off: bool = False
    """Whether `fit` raises `DeferredTrainingError` while the method's adapter is trained elsewhere, instead of
    waiting."""
    _unusable: set[str] = field(default_factory=set)
    """Store keys of fits that could not be loaded; new fits replace them."""

    def fit(self, name: str, learned: SplitData, validation: SplitData | None, configuration: int = 0) -> Fitted:
        """Fit a method, or load the stored fit of an earlier run with the same data and constants.

        Args:
            name: name of the method.
            learned: training split.
            validation: validation split for early stopping; None: there is none.
            configuration: index of the configuration to fit, with 0 for the preset's constants.

        Raises:
            DeferredTrainingError: the method's adapter is being trained elsewhere (call again once that is done), or
                `elsewhere` refuses to train it.
            ContractError: the method gives other confidences once its fit is saved and loaded.
            Exception: any exception that the method's `fit` raises.
        """
        fields, fresh = self._key_fields(name, learned, validation, configuration)
        key = None if fields["source"] is None else key_of(fields)
        stored = None if key is None else self._load_stored(name, fresh, key)
        DECISIONS.info("%s on %s: %s", name, learned.where, "fit taken from the store" if stored else "to be fitted")
        return stored or self._fit_and_store(fresh, key, fields, learned, validation)

    def is_stored(self, name: str, learned: SplitData, validation: SplitData | None) -> bool:
        """Return whether the store has the fit of a method with its preset's constants.

        Args:
            name: name of the method.
            learned: training split.
            validation: validation split for early stopping.
        """
        fields, _ = self._key_fields(name, learned, validation, 0)
        return fields["source"] is not None and self.store.get(FITS, key_of(fields)) is not None

    def _key_fields(
        self, name: str, learned: SplitData, validation: SplitData | None, configuration: int
    ) -> tuple[dict[str, Any], Callable[[], ConfidenceMethod]]:
        """Return the values whose hash is the store key of a fit, and a function that returns the unfitted method."""
        fresh = partial(self.resolved.new_method, name, configuration)
        method = fresh()
        seed = derived_seed(self.seed, name, self.lm.files.weights, str(learned.where))
        own = TokenIds(Of.QUERY) in method.reads().fit and not self.batches.reader.prompts.continues(learned.task)
        fields = {
            "method": name,
            **({"model": self.lm.fingerprint} if self.lm.fingerprint.endswith("+code") else {}),
            # former fits read the answer's prompt in the query conversation
            **({"query prompts": "of the query"} if own else {}),
            **({"blank": written} if (written := self.lm.chat.gap + self.lm.chat.blank) else {}),  # formerly left out
            "code": f"{type(method).__module__}:{type(method).__qualname__}",
            "source": None if name in self.resolved.passed else self.resolved.sources[name],  # None: it isn't stored
            "params": {k: repr(v) for k, v in method.params().items()},
            "seed": seed,
            "protocol": self.resolved.protocol.digest(),
            "device": device_kind(self.lm.device),
            "learned from": _data_identity(learned),
            **self.resolved.training_of(name),
            "validation": None if validation is None else _data_identity(validation),
        }
        return fields, fresh

    def context(self, name: str, learned: SplitData, validation: Batch | None, seed: int) -> Context:
        """Return the context (seed, protocol, adapter trainer, validation answers) that is passed to a method's `fit`.

        Args:
            name: name of the method.
            learned: training split.
            validation: labelled validation answers for early stopping.
            seed: seed of this fit.
        """
        # no ids where this model can't be asked; methods that read the query are refused there
        verdict_ids = tuple(self.batches.reader.prompt_settings(learned).verdict_ids.tolist())
        trainer = AdapterTrainer(
            self.lm, self.store, name, verdict_ids, token_budget=self.resolved.training_budget,
            progress=self.progress, elsewhere=self.elsewhere, waits=not self.puts_off,
        )  # fmt: skip
        return Context(
            seed, learned.task.format, self.lm.device, self.resolved.protocol, trainer, validation=validation
        )

    def _load_stored(self, name: str, fresh: Fresh, key: str) -> Fitted | None:
        """Return the stored fit with this key; None if it is missing, can't be loaded, or has lost its adapter."""
        entry = self.store.get(FITS, key)
        if entry is None:
            return None
        try:
            fitted = _load_fit(fresh(), entry)
            adapters = list(_adapters(fitted.method.fitted()))
        except Exception as error:  # noqa: BLE001 - a plugin's own `load`; it is fitted again
            self._replace_later(name, key, reason_of(error))
            return None
        n_notes = len(self.store.notes)
        entries = [(ref, self.store.get(ADAPTERS, ref.folder.name)) for ref in adapters]
        current = [(ref, e.folder) for ref, e in entries if e and e.folder.resolve() == ref.folder.resolve()]
        if len(current) == len(adapters) and all(fingerprint(folder) == ref.fingerprint for ref, folder in current):
            return fitted
        reported = self.store.notes[n_notes:]  # the store has noted a damaged adapter
        self._replace_later(name, key, "" if reported else "its adapter is another one")
        return None

    def _replace_later(self, name: str, key: str, reason: str) -> None:
        """Mark a stored fit as unusable, and note the reason for the user unless it is empty.

        The stored fit is deleted only when the new fit is done, since loading may have failed for lack of memory.
        """
        self._unusable.add(key)
        if reason:
            self.store.notes.append(f"the stored fit of {name} can't be used ({reason}); it is fitted again")

    def _fit_and_store(
        self, fresh: Fresh, key: str | None, fields: dict[str, Any], learned: SplitData, validation: SplitData | None
    ) -> Fitted:
        method, name, seed = fresh(), fields["method"], fields["seed"]
        start = time.perf_counter()
        reads = method.reads()
        train = self.batches.batch(learned, reads.fit, labels=True)
        refuse_one_class(method, labels_of(train), learned.where.split)
        validation_batch = None
        if validation is not None:
            validation_batch = self.batches.batch(validation, validation_signals(reads), labels=True)
        ctx = self.context(name, learned, validation_batch, seed)
        trainer = ctx.train_adapter
        assert isinstance(trainer, AdapterTrainer)  # noqa: S101  # for the type checker
        with self.progress.stage(f"fit {name}", 1, unit="fit") as advance:
            try:
                method.fit(train, ctx)
            except Exception:
                if not trainer.put_off:
                    raise
            if trainer.put_off:  # even if the method caught the exception
                raise DeferredTrainingError(f"{method.name} is fitted when its adapter is there")
            advance(1)
        seconds = time.perf_counter() - start + trainer.remote_seconds
        n_labels = len(train) if train.labels_read else 0
        n_validation = len(validation_batch) if validation_batch is not None and validation_batch.labels_read else 0
        on_validation = learned.where.split == "validation"
        labels = LabelsSeen(
            train=0 if on_validation else n_labels,
            validation=n_labels if on_validation else n_validation,
            gold=len(train) if any(map(leaks_label, reads.fit)) else 0,
        )
        training, curve = training_history(method, ctx, train, validation_batch)
        fitted = Fitted(method, training, labels, curve, seconds)
        if key is None:
            return fitted
        if key in self._unusable:
            self.store.remove(FITS, key)

        def write(folder: Path) -> None:
            _save_fit(fitted, folder)
            labelled = train if validation_batch is None else validation_batch
            if not reads.predict <= labelled.signals:
                return
            try:
                confidence = _predict_unlabelled(fresh().load(folder), labelled)
            except Exception:  # noqa: BLE001 - a plugin's own `load`; every run fits it again, and says so
                return
            if not np.allclose(confidence, _predict_unlabelled(method, labelled), atol=_SAME, equal_nan=True):
                raise ContractError(  # a run that takes its fit from the store would differ
                    f"{name} gives other confidences once its fit is saved and loaded: what `fit` learns must stand in"
                    " attributes that end in _, or be in its own `save` and `load`"
                )

        model = label_of(self.lm.spec)
        rows = len(train) + (0 if validation_batch is None else len(validation_batch))
        self.store.put(
            FITS, key, fields, write, seconds=seconds, rows=rows, selects=validation_batch is not None, model=model,
            split=str(learned.where),
        )  # fmt: skip
        return fitted


def derived_seed(seed: int, *parts: str) -> int:
    """Return a 63-bit seed: a hash of the run's seed and of `parts`, e.g. method, model and training split of a fit."""
    digest = hashlib.sha256("\0".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _adapters(value: Any) -> Iterator[AdapterRef]:
    """Yield the adapters among a method's fitted attributes, also those in nested dicts."""
    if isinstance(value, AdapterRef):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _adapters(item)


# --- account of the training ------------------------------------------------------------------------------------------


def training_history(
    method: ConfidenceMethod, ctx: Context, train: Batch, validation: Batch | None
) -> tuple[Training, FloatArray | None]:
    """Return the losses of a fit; and its curve `(points, m)`: confidences in m validation answers at each checkpoint.

    The curve of an adapter was recorded during its training. Any other method has a curve only if it has a single
    training with checkpoints, and this training is the whole fit: the confidences at the best checkpoint must equal
    those of the fitted method. Without a curve, the second result is None.
    """
    stages, reads = [stopping.stage() for stopping in ctx.trainings], method.reads().predict
    curve = train_confidence = None
    if (adapter := trained_adapter(method)) is not None:
        stages.append(load_training_stage(adapter))
        recorded = confidences(adapter)
        curve, train_confidence = recorded.get("validation"), recorded.get("train")
    elif validation is not None:
        curves = [(stopping, np.stack(stopping.confidences)) for stopping in ctx.trainings if stopping.confidences]
        if len(curves) == 1:
            ((stopping, points),) = curves
            best = points[best_point(stopping.stage().losses)]
            curve = points if np.allclose(_predict_unlabelled(method, validation), best, atol=_SAME) else None
    if train_confidence is None and reads <= train.signals:
        train_confidence = _predict_unlabelled(method, train)
    losses: dict[str, float | None] = {"train_nll": None, "validation_nll": None, "base_rate_nll": None}
    if train_confidence is not None:
        n = len(train_confidence)  # with an adapter, at even distances (`bench.training.job.CONFIDENCES`)
        losses["train_nll"] = validation_loss(train_confidence, train.correct[np.arange(n) * len(train) // n])
    if validation is not None:
        losses["base_rate_nll"] = validation_loss(np.full(len(validation), train.correct.mean()), validation.correct)
        if curve is not None:
            curve_losses = [validation_loss(point, validation.correct) for point in curve]
            losses["validation_nll"] = curve_losses[best_point(curve_losses)]
        elif reads <= validation.signals:
            losses["validation_nll"] = validation_loss(_predict_unlabelled(method, validation), validation.correct)
    finite = {name: loss if loss is not None and math.isfinite(loss) else None for name, loss in losses.items()}
    return Training(stages=tuple(stages), **finite), curve


def _predict_unlabelled(method: ConfidenceMethod, labelled: Batch) -> FloatArray:
    """Return the confidences `(n,)` that a method predicts for a batch; the method doesn't get the labels."""
    unlabelled = Batch(labelled.ids, {signal: labelled[signal] for signal in method.reads().predict})
    return outputs_of(method, unlabelled, allow_nan=True)


# --- files ------------------------------------------------------------------------------------------------------------


def _data_identity(split_data: SplitData) -> dict[str, Any]:
    return {"asked": split_data.content_digest, "answers": split_data.digest(), "left out": sorted(split_data.left_out)}


def _save_fit(fitted: Fitted, folder: Path) -> None:
    from safetensors.numpy import save_file

    fitted.method.save(folder)
    if not folder.is_dir():  # writing the account would create it anew, without the learned weights
        raise ContractError(f"{fitted.method.name} deleted the folder that save was given")
    account = {"training": asdict(fitted.training), "labels": asdict(fitted.labels)}
    write_json(folder / _ACCOUNT, account)
    if fitted.curve is not None:
        save_file({"confidence": np.ascontiguousarray(fitted.curve)}, folder / _CURVE)


def _load_fit(method: ConfidenceMethod, entry: Entry) -> Fitted:
    from safetensors.numpy import load_file

    account = json.loads((entry.folder / _ACCOUNT).read_text(encoding="utf-8"))
    curve = entry.folder / _CURVE
    return Fitted(
        method.load(entry.folder),
        decode_record(account["training"], Training),
        decode_record(account["labels"], LabelsSeen),
        load_file(curve)["confidence"] if curve.is_file() else None,
        float(entry.manifest["seconds"]),
    )
