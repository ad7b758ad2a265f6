"""Fit a method, or take its fit from the store: the method, what its training was like, and which labels it read."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import (
    Adapter,
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    FloatArray,
    QueryLogits,
    Signal,
    TokenIds,
    tells_gold,
)
from bench.batching import Batches
from bench.choose import Chosen, source_digest
from bench.decoding import decoder
from bench.early_stopping import validation_loss
from bench.errors import reason_of
from bench.launch.trainer import AdapterTrainer, confidences, training_stage
from bench.progress import Progress
from bench.reading import Reading, bundle_digest
from bench.records import LabelsSeen, Training, TrainingStage
from bench.store import Entry, Store, key_of

if TYPE_CHECKING:
    from bench.backbone.hf import Backbone

KIND = "fits"
"""The part of the store."""
ACCOUNT, CURVE = "training.json", "curve.safetensors"
"""Files beside what the method itself saves."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A method that has learned."""

    method: ConfidenceMethod
    training: Training
    labels: LabelsSeen
    curve: FloatArray | None
    """`(points, m)`: its confidences in the validation answers at each point of its training; None without points."""
    seconds: float

    def complaint(self) -> str | None:
        """What validation already shows: that a constant confidence would do better."""
        own, constant = self.training.validation_nll, self.training.base_rate_nll
        if own is None or constant is None or own <= constant:
            return None
        return (
            "on the validation answers its confidences are worse than a constant"
            f" (negative log-likelihood {own:.3f} against {constant:.3f})"
        )


@dataclass
class Fitter:
    """Fits the methods of a run on one backbone."""

    chosen: Chosen
    backbone: Backbone
    store: Store
    batches: Batches
    progress: Progress

    def fit(self, name: str, learned: Reading, validation: Reading | None, seed: int) -> Fitted:
        """Fit a method, or load the same fit of an earlier run.

        Args:
            name: of the method.
            learned: the split that it learns from.
            validation: the split that it may choose a step by.
            seed: of the run.
        """
        method = self.chosen.fresh(name)
        seed = derived_seed(seed, name, self.backbone.fingerprint, str(learned.where))
        fields = {
            "method": name,
            "code": f"{type(method).__module__}:{type(method).__qualname__}",
            "source": source_digest(type(method)),
            "params": {k: repr(v) for k, v in method.params().items()},
            "seed": seed,
            "protocol": self.chosen.protocol.digest(),
            "device": self.backbone.device,
            "learned from": _identity(learned),
            "validation": None if validation is None else _identity(validation),
        }
        key = key_of(fields)
        return self._stored(name, key) or self._new(name, key, fields, learned, validation, seed)

    def context(self, name: str, learned: Reading, validation: Batch | None, seed: int) -> Context:
        """What `fit` gets besides data."""
        no, yes = self.batches.reader.asking(learned).verdict_ids.tolist()
        trainer = AdapterTrainer(self.backbone, self.store, name, (no, yes), progress=self.progress)
        return Context(
            seed, learned.task.format, self.backbone.device, self.chosen.protocol, trainer, validation=validation
        )

    def _stored(self, name: str, key: str) -> Fitted | None:
        """The fit that an earlier run stored; None also where what it points to is gone."""
        entry = self.store.get(KIND, key)
        if entry is None:
            return None
        try:
            return _loaded(self.chosen.fresh(name), entry)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's own `load`; it is fitted again
            self.store.notes.append(f"the stored fit of {name} can't be used ({reason_of(error)}); it is fitted again")
            return None

    def _new(
        self, name: str, key: str, fields: dict[str, Any], learned: Reading, validation: Reading | None, seed: int
    ) -> Fitted:
        method = self.chosen.fresh(name)
        start = time.perf_counter()
        reads = method.reads()
        train = self.batches.batch(learned, reads.fit, labels=True)
        held = None
        if validation is not None:
            held = self.batches.batch(validation, selected_by(reads.fit, reads.predict), labels=True)
        ctx = self.context(name, learned, held, seed)
        with self.progress.stage(f"fit {name}", 1, unit="fit") as advance:
            method.fit(train, ctx)
            advance(1)
        seconds = time.perf_counter() - start
        labels = _labels(learned, reads.fit, train, held)
        stages, curve, sure_of_train = _trained(method, ctx)
        training = Training(
            stages=stages,
            train_nll=_train_nll(method, train, sure_of_train),
            validation_nll=None if held is None else _validation_nll(method, held, curve),
            base_rate_nll=None if held is None else _base_rate_nll(train, held),
        )
        fitted = Fitted(method, training, labels, curve, seconds)
        self.store.put(KIND, key, fields, lambda folder: _save(fitted, folder), seconds=seconds)
        return fitted


def selected_by(fit: frozenset[Signal], predict: frozenset[Signal]) -> frozenset[Signal]:
    """The signals of the validation batch: what is read to predict, and of what is read to learn the token ids.

    What goes through the method's own adapter is not there before the adapter is.
    """
    return frozenset(s for s in predict if s != QueryLogits(Adapter.OWN)) | {s for s in fit if isinstance(s, TokenIds)}


def derived_seed(seed: int, *parts: str) -> int:
    """A seed for one fit: 63 bits of a hash of the run's seed and of what is fitted on what."""
    digest = hashlib.sha256("\0".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# --- what happened in training ----------------------------------------------------------------------------------------


def _labels(learned: Reading, reads: frozenset[Signal], train: Batch, held: Batch | None) -> LabelsSeen:
    """What the method was told of right and wrong."""
    n = len(train) if train.labels_read else 0
    on_validation = learned.where.split == "validation"
    chosen_by = len(held) if held is not None and held.labels_read else 0
    return LabelsSeen(
        train=0 if on_validation else n,
        validation=n if on_validation else chosen_by,
        gold=len(train) if any(map(tells_gold, reads)) else 0,
    )


def _trained(
    method: ConfidenceMethod, ctx: Context
) -> tuple[tuple[TrainingStage, ...], FloatArray | None, FloatArray | None]:
    """Stages, confidences in the validation answers at each point, and those in the first training answers."""
    stages = [stopping.stage() for stopping in ctx.trainings]
    curves = [np.stack(stopping.confidences) for stopping in ctx.trainings if stopping.confidences]
    adapter = method.fitted().get("adapter_")
    if not isinstance(adapter, AdapterRef):
        return tuple(stages), curves[-1] if curves else None, None
    sure = confidences(adapter)
    return (*stages, training_stage(adapter)), sure.get("validation"), sure.get("train")


def _train_nll(method: ConfidenceMethod, train: Batch, sure: FloatArray | None) -> float | None:
    """In the answers that were learned from; None where the method reads other signals to predict than to learn."""
    if sure is not None:
        return validation_loss(sure, train.correct[: len(sure)])
    if not method.reads().predict <= train.signals:
        return None
    return validation_loss(_predicted(method, train), train.correct)


def _validation_nll(method: ConfidenceMethod, held: Batch, curve: FloatArray | None) -> float | None:
    if curve is not None:
        return min(validation_loss(confidence, held.correct) for confidence in curve)
    if not method.reads().predict <= held.signals:
        return None
    return validation_loss(_predicted(method, held), held.correct)


def _predicted(method: ConfidenceMethod, labelled: Batch) -> FloatArray:
    signals = method.reads().predict
    return np.asarray(method.predict(Batch(labelled.ids, {signal: labelled[signal] for signal in signals})))


def _base_rate_nll(train: Batch, held: Batch) -> float:
    return validation_loss(np.full(len(held), train.correct.mean()), held.correct)


# --- files ------------------------------------------------------------------------------------------------------------


def _identity(reading: Reading) -> dict[str, Any]:
    return {"answers": bundle_digest(reading), "left out": sorted(reading.left_out)}


def _save(fitted: Fitted, folder: Path) -> None:
    from safetensors.numpy import save_file

    fitted.method.save(folder)
    account = {"training": asdict(fitted.training), "labels": asdict(fitted.labels)}
    (folder / ACCOUNT).write_text(json.dumps(account), encoding="utf-8")
    if fitted.curve is not None:
        save_file({"confidence": np.ascontiguousarray(fitted.curve)}, folder / CURVE)


def _loaded(method: ConfidenceMethod, entry: Entry) -> Fitted:
    from safetensors.numpy import load_file

    account = json.loads((entry.folder / ACCOUNT).read_text(encoding="utf-8"))
    curve = entry.folder / CURVE
    return Fitted(
        method.load(entry.folder),
        decoder(Training)(account["training"]),
        decoder(LabelsSeen)(account["labels"]),
        load_file(curve)["confidence"] if curve.is_file() else None,
        float(entry.manifest["seconds"]),
    )
