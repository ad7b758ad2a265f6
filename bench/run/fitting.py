"""Fit a method, or take its fit from the store: the method, what its training was like, and which labels it read."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import AdapterRef, Batch, ConfidenceMethod, Context, ContractError, FloatArray
from bench.api.batch import labels_of
from bench.api.early_stopping import best_point, validation_loss
from bench.api.errors import reason_of
from bench.api.methods import given, refuse_one_class, validation_signals
from bench.api.signals import tells_gold
from bench.model.devices import kind_of
from bench.model.specs import label_of
from bench.progress import DECISIONS, Progress
from bench.results.row import LabelsSeen, Training, Tuning
from bench.run.resolve import ResolvedRun
from bench.signals.batches import Batches
from bench.signals.split_data import SplitData
from bench.store.decoding import decoded
from bench.store.files import write_json
from bench.store.folders import Entry, Store, key_of
from bench.store.sources import plugin_digest
from bench.training.assignment import KIND as ADAPTERS
from bench.training.trainer import AdapterTrainer, Elsewhere, PutOffError, confidences, training_stage

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

Fresh = Callable[[], ConfidenceMethod]
"""Makes a method that has not learned."""
FEW = 20
"""Validation answers below which they say nothing against a method."""
KIND = "fits"
"""The part of the store."""
_SAME = 1e-4
"""Largest difference between the confidences of the kept step and those of the fitted method."""
_ACCOUNT, _CURVE = "training.json", "curve.safetensors"
"""Files beside what the method itself saves."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """Configurations of a method that were fitted, of which one was chosen."""

    account: Tuning
    """Account of them, which the row has."""
    fits: tuple[Fitted, ...]
    """Each configuration that has confidences in the validation answers, in the order in which they were drawn."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A method that has learned."""

    method: ConfidenceMethod
    training: Training
    labels: LabelsSeen
    curve: FloatArray | None
    """`(points, m)`: its confidences in the validation answers at each point of its training; None without points."""
    seconds: float
    """Time of its fit; where it was chosen among configurations, that of all their fits."""
    tuned: Tuned | None = None
    """Choice among its configurations; None where there was nothing to choose."""

    def complaint(self) -> str | None:
        """Complaint that validation already justifies: that a constant confidence would do better."""
        own, constant = self.training.validation_nll, self.training.base_rate_nll
        if own is None or constant is None or 0 < self.labels.validation < FEW:
            return None
        ours, theirs = f"{own:.3f}", f"{constant:.3f}"
        if own <= constant or ours == theirs:
            return None
        return (
            "on the validation answers its confidences are worse than a constant"
            f" (negative log-likelihood {ours} against {theirs})"
        )


@dataclass
class Fitter:
    """Fits the methods of a run on one model."""

    resolved: ResolvedRun
    lm: LanguageModel
    store: Store
    batches: Batches
    progress: Progress
    seed: int
    """Seed of the run."""
    elsewhere: Elsewhere | None = None
    """Trains adapters; None: this machine does."""
    puts_off: bool = False
    """Whether a fit isn't waited for while its adapter is being trained elsewhere."""
    sources: Mapping[str, str | None] = field(default_factory=dict)
    """Method -> digest of its source when the run began: that is what runs, though its file was edited since. Fits of a
    class without a file, None, are not stored."""
    _unusable: set[str] = field(default_factory=set)
    """Keys of stored fits that new ones replace."""

    def fit(self, name: str, learned: SplitData, validation: SplitData | None, configuration: int = 0) -> Fitted:
        """Fit a method, or load the same fit of an earlier run.

        Args:
            name: of the method.
            learned: the split that it learns from.
            validation: the split that it may choose a step by.
            configuration: position of its constants among those that are tried; 0: its preset's.

        Raises:
            PutOffError: its adapter is being trained elsewhere; to be called again when that is over.
        """
        fields, fresh = self._fields(name, learned, validation, configuration)
        key = None if fields["source"] is None else key_of(fields)
        stored = None if key is None else self._stored(name, fresh, key)
        DECISIONS.info("%s on %s: %s", name, learned.where, "fit taken from the store" if stored else "to be fitted")
        return stored or self._new(fresh, key, fields, learned, validation)

    def is_stored(self, name: str, learned: SplitData, validation: SplitData | None) -> bool:
        """Whether an earlier run stored the fit of a preset's constants; the arguments of `fit`."""
        fields, _ = self._fields(name, learned, validation, 0)
        return fields["source"] is not None and self.store.get(KIND, key_of(fields)) is not None

    def _fields(
        self, name: str, learned: SplitData, validation: SplitData | None, configuration: int
    ) -> tuple[dict[str, Any], Callable[[], ConfidenceMethod]]:
        """Fields that the key of a fit is made of, and what makes the method."""
        fresh = partial(self.resolved.fresh, name, configuration)
        method = fresh()
        seed = derived_seed(self.seed, name, self.lm.files.weights, str(learned.where))
        fields = {
            "method": name,
            "code": f"{type(method).__module__}:{type(method).__qualname__}",
            "source": self.sources[name] if name in self.sources else plugin_digest(type(method)),
            "params": {k: repr(v) for k, v in method.params().items()},
            "seed": seed,
            "protocol": self.resolved.protocol.digest(),
            "device": kind_of(self.lm.device),
            "learned from": _identity(learned),
            **self.resolved.training_of(name),
            "validation": None if validation is None else _identity(validation),
        }
        return fields, fresh

    def context(self, name: str, learned: SplitData, validation: Batch | None, seed: int) -> Context:
        """Context that `fit` gets besides data.

        Args:
            name: of the method.
            learned: the split that it learns from.
            validation: labelled answers that it may choose a step by.
            seed: of this fit.
        """
        no, yes = self.batches.reader.asking(learned).verdict_ids.tolist()
        trainer = AdapterTrainer(
            self.lm, self.store, name, (no, yes), token_budget=self.resolved.training_budget,
            progress=self.progress, elsewhere=self.elsewhere, waits=not self.puts_off,
        )  # fmt: skip
        return Context(
            seed, learned.task.format, self.lm.device, self.resolved.protocol, trainer, validation=validation
        )

    def _stored(self, name: str, fresh: Fresh, key: str) -> Fitted | None:
        """The fit that an earlier run stored; None also where what it points to is gone."""
        from bench.model.adapter import fingerprint

        entry = self.store.get(KIND, key)
        if entry is None:
            return None
        try:
            fitted = _loaded(fresh(), entry)
            adapters = list(_adapters(fitted.method.fitted()))
        except Exception as error:  # noqa: BLE001 - a plugin's own `load`; it is fitted again
            self._to_replace(name, key, reason_of(error))
            return None
        noted = len(self.store.notes)
        known = [(ref, self.store.get(ADAPTERS, ref.folder.name)) for ref in adapters]
        here = [(ref, own.folder) for ref, own in known if own and own.folder.resolve() == ref.folder.resolve()]
        if len(here) == len(adapters) and all(fingerprint(folder) == ref.fingerprint for ref, folder in here):
            return fitted
        of_store = self.store.notes[noted:]  # of a damaged adapter it has said it
        self._to_replace(name, key, "" if of_store else "its adapter is another one")
        return None

    def _to_replace(self, name: str, key: str, reason: str) -> None:
        """Say why a fit is made again; the stored one stays until then, for it may be whole and the memory short."""
        self._unusable.add(key)
        if reason:
            self.store.notes.append(f"the stored fit of {name} can't be used ({reason}); it is fitted again")

    def _new(
        self, fresh: Fresh, key: str | None, fields: dict[str, Any], learned: SplitData, validation: SplitData | None
    ) -> Fitted:
        method, name, seed = fresh(), fields["method"], fields["seed"]
        start = time.perf_counter()
        reads = method.reads()
        train = self.batches.batch(learned, reads.fit, labels=True)
        refuse_one_class(method, labels_of(train), learned.where.split)
        held = None
        if validation is not None:
            held = self.batches.batch(validation, validation_signals(reads), labels=True)
        ctx = self.context(name, learned, held, seed)
        trainer = ctx.train_adapter
        assert isinstance(trainer, AdapterTrainer)  # noqa: S101  # for the type checker
        with self.progress.stage(f"fit {name}", 1, unit="fit") as advance:
            try:
                method.fit(train, ctx)
            except Exception:
                if not trainer.put_off:
                    raise
            if trainer.put_off:  # whatever the method made of hearing so
                raise PutOffError(f"{method.name} is fitted when its adapter is there")
            advance(1)
        seconds = time.perf_counter() - start + trainer.seconds_elsewhere
        told = len(train) if train.labels_read else 0
        chosen_by = len(held) if held is not None and held.labels_read else 0
        on_validation = learned.where.split == "validation"
        labels = LabelsSeen(
            train=0 if on_validation else told,
            validation=told if on_validation else chosen_by,
            gold=len(train) if any(map(tells_gold, reads.fit)) else 0,
        )
        training, curve = training_account(method, ctx, train, held)
        fitted = Fitted(method, training, labels, curve, seconds)
        if key is None:
            return fitted
        if key in self._unusable:
            self.store.remove(KIND, key)

        def write(folder: Path) -> None:
            _save(fitted, folder)
            labelled = train if held is None else held
            if not reads.predict <= labelled.signals:
                return
            try:
                sure = _predicted(fresh().load(folder), labelled)
            except Exception:  # noqa: BLE001 - a plugin's own `load`; every run fits it again, and says so
                return
            if not np.allclose(sure, _predicted(method, labelled), atol=_SAME, equal_nan=True):
                raise ContractError(  # a run that takes its fit from the store would differ
                    f"{name} gives other confidences once its fit is saved and loaded: what `fit` learns must stand in"
                    " attributes that end in _, or be in its own `save` and `load`"
                )

        model = label_of(self.lm.spec)
        rows = len(train) + (0 if held is None else len(held))
        self.store.put(
            KIND, key, fields, write, seconds=seconds, rows=rows, selects=held is not None, model=model,
            split=str(learned.where),
        )  # fmt: skip
        return fitted


def derived_seed(seed: int, *parts: str) -> int:
    """A seed for one fit: 63 bits of a hash of the run's seed and of what is fitted on what."""
    digest = hashlib.sha256("\0".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _adapters(value: Any) -> Iterator[AdapterRef]:
    """Adapters among fitted attributes."""
    if isinstance(value, AdapterRef):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _adapters(item)


# --- what happened in training ----------------------------------------------------------------------------------------


def training_account(
    method: ConfidenceMethod, ctx: Context, train: Batch, held: Batch | None
) -> tuple[Training, FloatArray | None]:
    """Account of a training, and `(points, m)` confidences in the validation answers at each of its points.

    A training whose kept step does not give the method's own confidences is a part of something, e.g. of an ensemble:
    then there are no points.
    """
    stages, reads = [stopping.stage() for stopping in ctx.trainings], method.reads().predict
    curve = sure = None
    adapter = method.fitted().get("adapter_")
    if isinstance(adapter, AdapterRef):
        stages.append(training_stage(adapter))
        recorded = confidences(adapter)
        curve, sure = recorded.get("validation"), recorded.get("train")  # the latter of the first answers
    elif held is not None:
        curves = [(stopping, np.stack(stopping.confidences)) for stopping in ctx.trainings if stopping.confidences]
        if len(curves) == 1:
            ((stopping, points),) = curves
            own = points[best_point(stopping.stage().losses)]
            curve = points if np.allclose(_predicted(method, held), own, atol=_SAME) else None
    if sure is None and reads <= train.signals:
        sure = _predicted(method, train)
    losses: dict[str, float | None] = {"train_nll": None, "validation_nll": None, "base_rate_nll": None}
    if sure is not None:
        losses["train_nll"] = validation_loss(sure, train.correct[: len(sure)])
    if held is not None:
        losses["base_rate_nll"] = validation_loss(np.full(len(held), train.correct.mean()), held.correct)
        if curve is not None:
            of_points = [validation_loss(confidence, held.correct) for confidence in curve]
            losses["validation_nll"] = of_points[best_point(of_points)]
        elif reads <= held.signals:
            losses["validation_nll"] = validation_loss(_predicted(method, held), held.correct)
    known = {name: loss if loss is not None and math.isfinite(loss) else None for name, loss in losses.items()}
    return Training(stages=tuple(stages), **known), curve


def _predicted(method: ConfidenceMethod, labelled: Batch) -> FloatArray:
    """Confidences `(n,)` as a run would ask for them."""
    unlabelled = Batch(labelled.ids, {signal: labelled[signal] for signal in method.reads().predict})
    return given(method, unlabelled, allow_nan=True)


# --- files ------------------------------------------------------------------------------------------------------------


def _identity(split_data: SplitData) -> dict[str, Any]:
    return {"asked": split_data.asked, "answers": split_data.digest(), "left out": sorted(split_data.left_out)}


def _save(fitted: Fitted, folder: Path) -> None:
    from safetensors.numpy import save_file

    fitted.method.save(folder)
    if not folder.is_dir():  # writing the account would make another one, without what was learned
        raise ContractError(f"{fitted.method.name} deleted the folder that save was given")
    account = {"training": asdict(fitted.training), "labels": asdict(fitted.labels)}
    write_json(folder / _ACCOUNT, account)
    if fitted.curve is not None:
        save_file({"confidence": np.ascontiguousarray(fitted.curve)}, folder / _CURVE)


def _loaded(method: ConfidenceMethod, entry: Entry) -> Fitted:
    from safetensors.numpy import load_file

    account = json.loads((entry.folder / _ACCOUNT).read_text(encoding="utf-8"))
    curve = entry.folder / _CURVE
    return Fitted(
        method.load(entry.folder),
        decoded(account["training"], Training),
        decoded(account["labels"], LabelsSeen),
        load_file(curve)["confidence"] if curve.is_file() else None,
        float(entry.manifest["seconds"]),
    )
