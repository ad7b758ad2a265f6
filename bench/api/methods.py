"""`ConfidenceMethod`, the base class of methods; `Needs`, the signals a method reads; `Context`, which `fit` gets."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
    """The signals that a method reads in `fit` and in `predict`; reading any other signal is an error."""

    fit: frozenset[Signal] = frozenset()
    predict: frozenset[Signal] = frozenset()


def validation_signals(needs: Needs) -> frozenset[Signal]:
    """Return the signals of `ctx.validation`: those of `needs.predict`, and the token ids among `needs.fit`.

    Excluded are signals that reveal the right answer, and signals of the method's own adapter, which is not trained
    yet.
    """
    read = needs.predict | {signal for signal in needs.fit if isinstance(signal, TokenIds)}
    return frozenset(s for s in read if not leaks_label(s) and s != QueryLogits(Adapter.OWN))


LEARNED_SPLITS: tuple[Split, ...] = ("train", "validation")
"""Splits on which `fit` may train; a method names one in `fit_on`."""


def refuse_gold(who: str, needs: Needs, fit_on: Split = "train") -> None:
    """Check that `predict` of a method can't read the right answers.

    Args:
        who: name of the method, for the error.
        needs: the signals that the method reads.
        fit_on: the split on which the method trains.

    Raises:
        ContractError: `predict` would read a signal that reveals the right answer, a signal is of a class that
            `bench.api.signals` does not define, or `fit` would train on a split other than `LEARNED_SPLITS`.
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
    """Check that a method declares a valid `output`, and that a trained method returns probabilities.

    Raises:
        ContractError: `output` has no allowed value, or a method with `fit` returns scores.
    """
    outputs = get_args(Output)
    if plugin.output not in outputs:
        raise ContractError(f"{who}: output: expected one of {', '.join(outputs)}, got {plugin.output!r}")
    if plugin.output == "score" and plugin.trains():
        raise ContractError(
            f"{who}: output is 'score', but it learns (it has a fit); a method that learns gives probabilities"
        )


def refuse_one_class(method: ConfidenceMethod, correct: BoolArray | None, split: Split) -> None:
    """Check that the training labels have both classes, unless the method declares that one class is enough.

    Args:
        method: the method to fit.
        correct: `(n,)` training labels; None if there are none.
        split: split of the labels, for the error.

    Raises:
        UntrainableError: all labels are equal, or there are 0 labels (`correct` has the shape `(0,)`).
    """
    if method.takes_one_class or correct is None or (correct.any() and not correct.all()):
        return
    what = "training" if split == "train" else split
    kind = f"all {len(correct):,} {what} answers are {'right' if correct.any() else 'wrong'}"
    raise UntrainableError(
        f"{kind if len(correct) else f'there are no {what} answers'}: there is nothing to learn;"
        " raise --train-limit, if given, or name another task with --train-on"
    )


@dataclass(frozen=True)
class Context:
    """Everything that `fit` gets besides training data: seed, device, protocol and validation answers."""

    seed: int
    """Seed of 63 bits, derived from the run's seed, the method, the model's weights, and task and split of the training
    answers. scikit-learn needs `seed % 2**32`."""
    format: Format = Format.CHOICE
    device: str = "cpu"
    protocol: SharedProtocol = field(default_factory=SharedProtocol)
    train_adapter: TrainAdapter | None = None
    """Function that trains a LoRA adapter; None if no model is loaded."""
    validation: Batch | None = None
    """Labelled validation answers, with the signals of `needs.predict` and the token ids of `needs.fit`. Signals that
    reveal the right answer or need the method's own adapter are left out. None if there are no validation answers, if
    the preset keeps the last training step, or if the method trains on this split."""
    trainings: list[EarlyStopping] = field(default_factory=list, repr=False, compare=False)
    """One `EarlyStopping` for each call of `early_stopping`; the harness reads their records after `fit`."""

    @property
    def rng(self) -> np.random.Generator:
        """A new random generator with this context's seed; each access restarts the same stream."""
        return np.random.default_rng(self.seed)

    def early_stopping(
        self, limit: int, *, name: str = "", published: int = 0, points: int = POINTS, epochs_per_step: float = 0.0
    ) -> EarlyStopping:
        """Return an iterator over training steps that ends early when the validation loss no longer falls.

        The arguments are those of `EarlyStopping`.
        """
        stopping = EarlyStopping(
            limit, self.validation, name=name, published=published, points=points, epochs_per_step=epochs_per_step
        )
        self.trainings.append(stopping)
        return stopping


@dataclass(frozen=True)
class NumpyFormula:
    """A fitted method's confidences as functions of one hidden state, which `bench head export` copies into a page.

    The page has `np`, `Any` and `Mapping`, and the names `Arrays` and `FloatArray` for annotations.
    """

    functions: tuple[Callable[..., Any], ...]
    """Functions of a module, in the order in which they stand on the page; they use numpy and each other. The last one
    maps `arrays` and states `(n, d)` float32 to confidences `(n,)`."""
    arrays: Mapping[str, Any]
    """Name -> array that was learned, or a nested mapping of arrays; without "/" in names."""


Preset = Mapping[str, object]
Output = Literal["probability", "score"]


class ConfidenceMethod(ABC):
    """Estimates the probability that a model's answer is right from the model's signals.

    The arguments of `__init__` are the method's constants; `__init__` stores them and does nothing else. A dataclass
    does this, with one field for each constant: `@dataclass(kw_only=True, eq=False)`. What `fit` learns is stored in
    attributes that end in `_`. They may be numbers, strings, numpy arrays, an `AdapterRef`, estimators of scikit-learn,
    or lists, tuples and dicts of these.
    """

    name: ClassVar[str]
    """Name on the command line, in file names and in tables; set by `@method("...")`."""
    reference: ClassVar[str] = "unpublished"
    """Source of the method, "arXiv:..." or "doi:..."; a method that is in no paper leaves it out."""
    needs: ClassVar[Needs]
    output: ClassVar[Output] = "probability"
    """What `predict` returns: probabilities, or scores that only rank answers, e.g. a negative entropy. The harness
    maps all scores to probabilities by a logistic fit on their ranks among the validation answers. Without validation
    labels, scores have ranking metrics only. Only methods without `fit` may return scores."""
    fit_on: ClassVar[Split] = "train"
    """The split whose answers and labels `fit` gets."""
    draws: ClassVar[bool] = True
    """Whether `fit` is random, so that two seeds never give equal confidences; has no effect without `fit`."""
    takes_one_class: ClassVar[bool] = False
    """Whether `fit` can learn when all training answers are right, or all wrong. If False, `fit` is not called on such
    answers, and the method's result on the task is skipped with this reason."""
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType({})
    """Name of a preset -> keyword arguments of `__init__`; omitted arguments keep their defaults. A method without
    presets runs as "defaults" under any preset."""
    small: ClassVar[Mapping[str, object]] = MappingProxyType({})
    """Keyword arguments of `__init__` that `bench check` adds to those of the first preset. They should make `fit` on
    200 answers take a second or two."""
    search: ClassVar[Mapping[str, Search]] = MappingProxyType({})
    """Name of a training constant -> its search space for `bench run --tune N`, e.g. {"learning_rate": Times(0.1, 10)}.
    Constants that change the signals are not allowed. Methods that train on validation can't have a search space, as
    validation answers choose among configurations. Methods without one run with their preset's values."""
    published_training: ClassVar[str] = ""
    """Length of the published training in words, for the footnote of a run whose training was shorter."""
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})
    """Name of a preset -> differences between this method and its source, one sentence each; `bench show
    --constants` lists them."""
    analyses: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name -> "module:function" of an analysis for `bench analyze`: it gets an `AnalysisInput` and returns `Findings`
    or `Measures`. Without a module, the function is in the module of the class. The module is imported when needed."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name of a contract check (`bench check`) -> reason why this method may fail it. If the check passes, that is an
    error."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Learn from labelled answers and return self; the default learns nothing.

        Raises:
            UntrainableError: the method can't learn from these answers; its result is skipped with this reason. Answers
                that are all right or all wrong are refused before this call, unless `takes_one_class` is set.
        """
        del train, ctx
        return self

    @abstractmethod
    def predict(self, batch: Batch) -> FloatArray:
        """Return one value for each answer, `(n,)`: confidences within [0, 1], or finite scores (see `output`).

        Higher means more confident. The value of an answer must not depend on the other answers of the batch.
        """

    def reads(self) -> Needs:
        """Return the signals that this object reads; by default the class attribute `needs`.

        Override this if the signals depend on the method's constants.
        """
        return type(self).needs

    def skip(self, facts: RunFacts) -> str | None:
        """Return the reason why the method can't run with this model and data, or None if it can."""
        del facts
        return None

    def oddities(self, batch: Batch) -> Mapping[str, int]:
        """Return counts of unusual answers to show with the results, e.g. {"replies without a number": 3}."""
        del batch
        return {}

    def n_parameters(self, facts: RunFacts) -> int:
        """Return the number of parameters that `fit` trains, for the table of sizes."""
        del facts
        return 0

    def export(self) -> NumpyFormula | None:
        """Return the fitted method as functions of numpy, for `bench head export`; None if it has no such form.

        Only for methods that read one hidden state for each answer, or the mean of its tokens' states.
        """
        return None

    @classmethod
    def trains(cls) -> bool:
        """Return whether the method learns, that is, whether its class overrides `fit`."""
        return cls.fit is not ConfidenceMethod.fit

    def params(self) -> dict[str, object]:
        """Return the method's constants, by name: the arguments of `__init__` as stored."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes: every attribute that ends in `_` and does not begin with `_`."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}

    def save(self, folder: Path) -> None:
        """Save the fitted attributes: arrays to `fitted.safetensors`, the rest to `fitted.json`.

        An adapter is saved as the path of its folder.

        Raises:
            ContractError: an attribute has a type that can't be saved.
        """
        from safetensors.numpy import save_file

        arrays: dict[str, npt.NDArray[Any]] = {}
        plain = _split_arrays(self.fitted(), "", arrays)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "fitted.safetensors")
        (folder / "fitted.json").write_text(json.dumps(plain), encoding="utf-8")

    def load(self, folder: Path) -> Self:
        """Load the attributes that `save` wrote, and return self.

        Raises:
            UserError: the folder of an adapter is gone.
            ContractError: an estimator is invalid, or was saved with another version of scikit-learn.
        """
        from safetensors.numpy import load_file

        arrays = load_file(folder / "fitted.safetensors")
        plain = json.loads((folder / "fitted.json").read_text(encoding="utf-8"))
        for key, value in plain.items():
            setattr(self, key, _join_arrays(value, arrays, f"/{key}"))
        return self


def outputs_of(method: ConfidenceMethod, batch: Batch, *, allow_nan: bool = False) -> npt.NDArray[np.float64]:
    """Call `predict` and return its confidences or scores `(n,)` as float64, after validating them.

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
