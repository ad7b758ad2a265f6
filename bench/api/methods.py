"""`ConfidenceMethod`, the base class of methods; `Needs`, the signals it reads; `Context`, which `fit` gets."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from bench.api.adapters import TrainAdapter
from bench.api.batch import Batch, BoolArray, FloatArray
from bench.api.confidence import check_confidences, check_scores
from bench.api.early_stopping import POINTS, EarlyStopping
from bench.api.errors import ContractError, UntrainableError
from bench.api.facts import RunFacts
from bench.api.fitted import _join_arrays, _split_arrays
from bench.api.protocol import Protocol as SharedProtocol
from bench.api.question import Format, Split
from bench.api.search import Search
from bench.api.signals import Adapter, QueryLogits, Signal, TokenIds, _is_plain, leaks_label


@dataclass(frozen=True)
class Needs:
    """The signals that a method reads in `fit` and `predict`; it can read no others."""

    fit: frozenset[Signal] = frozenset()
    predict: frozenset[Signal] = frozenset()


def validation_signals(needs: Needs) -> frozenset[Signal]:
    """Return the signals of `ctx.validation`: those of `needs.predict`, and the token ids of `needs.fit`.

    Signals that reveal the right answer are excluded, and those computed with the adapter, which is not trained yet.
    """
    read = needs.predict | {signal for signal in needs.fit if isinstance(signal, TokenIds)}
    return frozenset(s for s in read if not leaks_label(s) and s != QueryLogits(Adapter.OWN))


LEARNED_SPLITS: tuple[Split, ...] = ("train", "validation")
"""Splits on which `fit` may train."""


def refuse_gold(who: str, needs: Needs, fit_on: Split = "train") -> None:
    """Check that `predict` of a method can't read the right answers.

    Args:
        who: name of the method, for the error.
        needs: the signals that the method reads.
        fit_on: the split on which the method trains.

    Raises:
        ContractError: `predict` would read a signal that reveals the right answer, or `fit` would train on a split
            other than `LEARNED_SPLITS`.
    """
    invalid = sorted(type(signal).__name__ for signal in needs.fit | needs.predict if not _is_plain(signal))
    if invalid:
        raise ContractError(f"{who}: expected signals of bench.api as they are, got {', '.join(invalid)}")
    leaking = sorted(repr(signal) for signal in needs.predict if leaks_label(signal))
    if leaking:
        raise ContractError(
            f"{who}: predict would read {', '.join(leaking)}, which tells the right answer; only fit may read that"
        )
    if fit_on not in LEARNED_SPLITS:
        raise ContractError(f"{who}: fit_on: expected one of {', '.join(LEARNED_SPLITS)}, got {fit_on!r}")


def refuse_output(who: str, plugin: type[ConfidenceMethod]) -> None:
    """Check that a method declares a valid `output`, and that a trained one returns probabilities.

    Raises:
        ContractError: `output` has no allowed value, or the method trains and returns scores.
    """
    outputs = get_args(Output)
    if plugin.output not in outputs:
        raise ContractError(f"{who}: output: expected one of {', '.join(outputs)}, got {plugin.output!r}")
    if plugin.output == "score" and plugin.trains():
        raise ContractError(
            f"{who}: output is 'score', but it learns (it has a fit); a method that learns gives probabilities"
        )


def refuse_one_class(method: ConfidenceMethod, correct: BoolArray | None, split: Split) -> None:
    """Check that the labels have both classes, unless the method declares that it can learn from one.

    Args:
        method: the method to fit.
        correct: `(n,)` training labels; None if there are none.
        split: split of the labels, for the error.

    Raises:
        UntrainableError: all labels are equal.
    """
    if method.takes_one_class or correct is None or (correct.any() and not correct.all()):
        return
    what = "training" if split == "train" else split
    kind = f"all {len(correct):,} {what} answers are {'right' if correct.any() else 'wrong'}"
    raise UntrainableError(
        f"{kind if len(correct) else f'there are no {what} answers'}: there is nothing to learn;"
        " raise --limit, or name another task with --train-on"
    )


@dataclass(frozen=True)
class Context:
    """Everything that `fit` gets besides training data: seed, device, protocol and validation answers."""

    seed: int
    """Seed of 63 bits, derived from the run's seed, method, model and task; for scikit-learn use `seed % 2**32`."""
    format: Format = Format.CHOICE
    device: str = "cpu"
    protocol: SharedProtocol = field(default_factory=SharedProtocol)
    train_adapter: TrainAdapter | None = None
    """Trains a LoRA adapter; None where there is no model."""
    validation: Batch | None = None
    """Labelled answers of the validation split, with the signals of `needs.predict` and the token ids of `needs.fit`;
    None where the preset keeps the last step, where the method trains on that split, or where there is none."""
    trainings: list[EarlyStopping] = field(default_factory=list, repr=False, compare=False)
    """Trainings created by `early_stopping`; the harness reads them after `fit`."""

    @property
    def rng(self) -> np.random.Generator:
        """A new generator with this context's seed; each access starts the same stream again."""
        return np.random.default_rng(self.seed)

    def early_stopping(
        self, limit: int, *, name: str = "", published: int = 0, points: int = POINTS, epochs_per_step: float = 0.0
    ) -> EarlyStopping:
        """Return an iterator over training steps that stops early on validation; arguments as for `EarlyStopping`."""
        stopping = EarlyStopping(
            limit, self.validation, name=name, published=published, points=points, epochs_per_step=epochs_per_step
        )
        self.trainings.append(stopping)
        return stopping


Preset = Mapping[str, object]
Output = Literal["probability", "score"]


class ConfidenceMethod(ABC):
    """Estimates the probability that a model's answer is right from the model's signals.

    Its constants are the arguments of `__init__`, which stores them and does nothing else: a dataclass with a field for
    each, `@dataclass(kw_only=True, eq=False)`, does that. What `fit` learns is stored in attributes that end in `_`
    (numbers, strings, numpy arrays, an `AdapterRef`, estimators of scikit-learn, or lists, tuples and dicts of these).
    """

    name: ClassVar[str]
    """Set by `@method("...")`: the name on the command line, in file names and in tables."""
    reference: ClassVar[str]
    """Source of the method: "arXiv:..." or "doi:..."."""
    needs: ClassVar[Needs]
    output: ClassVar[Output] = "probability"
    """Output of `predict`: probabilities, or scores that only rank answers, e.g. a negative entropy. Scores become
    probabilities by one rule for all, a logistic fit on their ranks among the validation answers, so that their unit
    doesn't matter; without validation labels they only have ranking metrics. Scores are for methods without `fit`."""
    fit_on: ClassVar[Split] = "train"
    """The split whose answers and labels `fit` gets."""
    draws: ClassVar[bool] = True
    """Whether `fit` is random, so that two seeds never give the same confidences; ignored without `fit`."""
    takes_one_class: ClassVar[bool] = False
    """Whether `fit` can learn from answers that are all right, or all wrong; else it is not called then, and the cell
    is skipped with this reason."""
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType({})
    """Preset name -> keyword arguments of `__init__`; omitted ones keep their defaults. A method without presets runs
    as "defaults" under any preset."""
    small: ClassVar[Mapping[str, object]] = MappingProxyType({})
    """Keyword arguments of `__init__` that `bench check` adds to those of the first preset, so that `fit` on 200
    answers takes a second or two."""
    search: ClassVar[Mapping[str, Search]] = MappingProxyType({})
    """Field -> its search space for `bench run --tune N`, e.g. {"learning_rate": Times(0.1, 10)}: training constants
    only, none that changes the signals. A method without it runs with its preset. Not for methods that train on
    validation, by which configurations are chosen."""
    published_training: ClassVar[str] = ""
    """Length of the published training in words, for the footnote where the run's training was cut short."""
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})
    """Preset -> differences of this method from its source, one sentence each; `bench show` lists them."""
    analyses: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name -> "module:function" of an analysis for `bench analyze`: it gets an `AnalysisInput` and returns
    `Findings` or `Measures`.
    Imported only when it is requested; the default module is that of the class."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Contract check -> reason why this method may break it; an entry that is no longer needed fails."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Learn from labelled answers; the default learns nothing. Returns self.

        Raises:
            UntrainableError: the method can't learn from these answers; its cell is skipped with this reason. The
                harness itself checks whether all are right, or all wrong.
        """
        del train, ctx
        return self

    @abstractmethod
    def predict(self, batch: Batch) -> FloatArray:
        """Return confidences `(n,)` within [0, 1], or finite scores (see `output`); higher = more confident.

        An answer's value must not depend on the other answers of the batch.
        """

    def reads(self) -> Needs:
        """Return the signals that this instance reads: by default `needs`; override it if they depend on arguments."""
        return type(self).needs

    def skip(self, facts: RunFacts) -> str | None:
        """Return a reason to skip this run, or None."""
        del facts
        return None

    def oddities(self, batch: Batch) -> Mapping[str, int]:
        """Return counts of unusual answers for readers of the results, e.g. {"replies without a number": 3}."""
        del batch
        return {}

    def n_parameters(self, facts: RunFacts) -> int:
        """Return the number of trained parameters, for the size table."""
        del facts
        return 0

    @classmethod
    def trains(cls) -> bool:
        """Return whether the class overrides `fit`."""
        return cls.fit is not ConfidenceMethod.fit

    def params(self) -> dict[str, object]:
        """Return the arguments of `__init__` as stored."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes: every attribute that ends in `_`."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}

    def save(self, folder: Path) -> None:
        """Save the fitted attributes: arrays to `fitted.safetensors`, the rest to `fitted.json`, adapters by folder."""
        from safetensors.numpy import save_file

        arrays: dict[str, npt.NDArray[Any]] = {}
        plain = _split_arrays(self.fitted(), "", arrays)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "fitted.safetensors")
        (folder / "fitted.json").write_text(json.dumps(plain), encoding="utf-8")

    def load(self, folder: Path) -> Self:
        """Load the attributes that `save` wrote. Returns self.

        Raises:
            UserError: the folder of an adapter is gone.
        """
        from safetensors.numpy import load_file

        arrays = load_file(folder / "fitted.safetensors")
        plain = json.loads((folder / "fitted.json").read_text(encoding="utf-8"))
        for key, value in plain.items():
            setattr(self, key, _join_arrays(value, arrays, f"/{key}"))
        return self


def outputs_of(method: ConfidenceMethod, batch: Batch, *, allow_nan: bool = False) -> npt.NDArray[np.float64]:
    """Call `predict` and return its validated confidences or scores `(n,)`, as float64; runs and checks both use it.

    Args:
        method: a fitted method, or one without `fit`.
        batch: n answers.
        allow_nan: as for `check_confidences`.

    Raises:
        ContractError: the output is invalid.
        Exception: any exception of the method.
    """
    caller, values = f"{method.name}.predict", method.predict(batch)
    if method.output == "score":
        return check_scores(caller, values, batch.ids)
    return check_confidences(caller, values, len(batch), allow_nan=allow_nan)
