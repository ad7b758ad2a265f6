"""`ConfidenceMethod`, what it reads, and what its `fit` is given."""

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
from bench.api.confidence import checked, checked_scores
from bench.api.early_stopping import POINTS, EarlyStopping
from bench.api.errors import ContractError, UntrainableError
from bench.api.facts import RunFacts
from bench.api.fitted import _join_arrays, _split_arrays
from bench.api.protocol import Protocol as SharedProtocol
from bench.api.question import Format, Split
from bench.api.search import Search
from bench.api.signals import Adapter, QueryLogits, Signal, TokenIds, _is_plain, tells_gold


@dataclass(frozen=True)
class Needs:
    """The signals a method reads: nothing else can be read."""

    fit: frozenset[Signal] = frozenset()
    predict: frozenset[Signal] = frozenset()


def validation_signals(needs: Needs) -> frozenset[Signal]:
    """Signals that `ctx.validation` holds: those of `needs.predict`, and the token ids of `needs.fit`.

    Without what tells the right answer, and without what goes through the method's own adapter, which is not there yet.
    """
    read = needs.predict | {signal for signal in needs.fit if isinstance(signal, TokenIds)}
    return frozenset(s for s in read if not tells_gold(s) and s != QueryLogits(Adapter.OWN))


LEARNED_SPLITS: tuple[Split, ...] = ("train", "validation")
"""Splits that `fit` may learn from."""


def refuse_gold(who: str, needs: Needs, fit_on: Split = "train") -> None:
    """Check that a method can't see the right answers of what it predicts.

    Args:
        who: names the method in the error.
        needs: what it reads.
        fit_on: where it learns.

    Raises:
        ContractError: `predict` would read a signal that tells the right answer, or `fit` would learn on another split.
    """
    strange = sorted(type(signal).__name__ for signal in needs.fit | needs.predict if not _is_plain(signal))
    if strange:
        raise ContractError(f"{who}: expected signals of bench.api as they are, got {', '.join(strange)}")
    told = sorted(repr(signal) for signal in needs.predict if tells_gold(signal))
    if told:
        raise ContractError(
            f"{who}: predict would read {', '.join(told)}, which tells the right answer; only fit may read that"
        )
    if fit_on not in LEARNED_SPLITS:
        raise ContractError(f"{who}: fit_on: expected one of {', '.join(LEARNED_SPLITS)}, got {fit_on!r}")


def refuse_output(who: str, plugin: type[ConfidenceMethod]) -> None:
    """Check that a method says what it gives, and that one which learns gives probabilities.

    Raises:
        ContractError: it doesn't.
    """
    outputs = get_args(Output)
    if plugin.output not in outputs:
        raise ContractError(f"{who}: output: expected one of {', '.join(outputs)}, got {plugin.output!r}")
    if plugin.output == "score" and plugin.trains():
        raise ContractError(
            f"{who}: output is 'score', but it learns (it has a fit); a method that learns gives probabilities"
        )


def refuse_one_class(method: ConfidenceMethod, correct: BoolArray | None, split: Split) -> None:
    """Check that there is something to learn: right and wrong answers, unless the method says that it takes one kind.

    Args:
        method: which learns.
        correct: `(n,)` labels of what it would learn from; None where there are none.
        split: that these are of, for the error.

    Raises:
        UntrainableError: all are of one kind.
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
    """Everything that `fit` gets besides data: the only source of randomness, device and shared numbers."""

    seed: int
    """Seed of 63 bits, from the run's seed, the method, the model and the task; for scikit-learn `seed % 2**32`."""
    format: Format = Format.CHOICE
    device: str = "cpu"
    protocol: SharedProtocol = field(default_factory=SharedProtocol)
    train_adapter: TrainAdapter | None = None
    """None where there is no model to adapt."""
    validation: Batch | None = None
    """Labelled answers of the validation split, with the signals of `needs.predict` and the token ids of `needs.fit`;
    None where the preset keeps the last step, where a method learns on that split, or where there is none."""
    trainings: list[EarlyStopping] = field(default_factory=list, repr=False, compare=False)
    """Trainings that `early_stopping` has handed out; read by the harness after `fit`."""

    @property
    def rng(self) -> np.random.Generator:
        """A generator at the start of this context's stream; each access starts it again."""
        return np.random.default_rng(self.seed)

    def early_stopping(
        self, limit: int, *, name: str = "", published: int = 0, points: int = POINTS, epochs_per_step: float = 0.0
    ) -> EarlyStopping:
        """The steps of a training, which end when the validation answers say so; arguments as `EarlyStopping`'s."""
        stopping = EarlyStopping(
            limit, self.validation, name=name, published=published, points=points, epochs_per_step=epochs_per_step
        )
        self.trainings.append(stopping)
        return stopping


Preset = Mapping[str, object]
Output = Literal["probability", "score"]


class ConfidenceMethod(ABC):
    """Turns what a model did into a probability that its answer is right.

    Its constants are the arguments of `__init__`, which stores them and does nothing else: a dataclass with a field for
    each, `@dataclass(kw_only=True, eq=False)`, does that. What `fit` learns is kept in attributes that end in `_`
    (numbers, strings, numpy arrays, an `AdapterRef`, estimators of scikit-learn, or lists, tuples and dicts of these).
    """

    name: ClassVar[str]
    """Set by `@method("...")`: the name on the command line, in file names and in tables."""
    reference: ClassVar[str]
    """Source of the method: "arXiv:..." or "doi:..."."""
    needs: ClassVar[Needs]
    output: ClassVar[Output] = "probability"
    """Kind of what `predict` gives: probabilities, or scores that only say which answer is surer, e.g. an entropy with
    its sign turned round. Scores become probabilities by one rule for all, a logistic fit on their order among the
    validation answers, so that their unit doesn't matter; without validation labels they have metrics of order alone.
    Only for a method that learns nothing."""
    fit_on: ClassVar[Split] = "train"
    """The split whose answers and labels `fit` gets."""
    draws: ClassVar[bool] = True
    """Whether `fit` draws at random, so that two seeds never give the same confidences; of no account without `fit`."""
    takes_one_class: ClassVar[bool] = False
    """Whether `fit` can learn from answers that are all right, or all wrong; else it is not asked to, and the cell is
    skipped with this reason."""
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType({})
    """Preset name -> keyword arguments of `__init__`; one that is left out keeps its default. A method without presets
    runs as "defaults" under any."""
    small: ClassVar[Mapping[str, object]] = MappingProxyType({})
    """Keyword arguments of `__init__` with which `bench check` makes the method, beside those of its first preset: so
    that `fit` on 200 answers takes a second or two."""
    search: ClassVar[Mapping[str, Search]] = MappingProxyType({})
    """Field -> what `bench run --tune N` draws it from, e.g. {"learning_rate": Times(0.1, 10)}: constants of training
    alone, never one that changes what is read. A method without it runs with its preset. Not for one that learns on
    validation, by which configurations are chosen."""
    published_training: ClassVar[str] = ""
    """Length of the published training in words, for the footnote of one that was cut short."""
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})
    """Preset -> what its source does and this method does not, a sentence each; `bench show` lists them."""
    analyses: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name -> "module:function" of an analysis that `bench analyze` runs: it gets an `AnalysisInput` and returns
    `Findings`. Imported only when it is asked for; a missing module is that of the class."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Contract check -> reason why this method may break it; an entry that is no longer needed fails."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Learn from labelled answers; the default learns nothing. Returns self.

        Raises:
            UntrainableError: these answers can't teach it anything; its cell is skipped with this reason. That all are
                right, or all wrong, the harness says itself.
        """
        del train, ctx
        return self

    @abstractmethod
    def predict(self, batch: Batch) -> FloatArray:
        """Confidences `(n,)` within [0, 1], or finite scores as `output` says; higher = surer.

        One answer's value does not depend on the others.
        """

    def reads(self) -> Needs:
        """Signals that this instance reads: `needs`, unless arguments change it."""
        return type(self).needs

    def skip(self, facts: RunFacts) -> str | None:
        """A reason not to run here, or None."""
        del facts
        return None

    def oddities(self, batch: Batch) -> Mapping[str, int]:
        """Counts of what a reader of the results should know of the answers, e.g. {"replies without a number": 3}."""
        del batch
        return {}

    def n_parameters(self, facts: RunFacts) -> int:
        """Trained parameters, for the size table."""
        del facts
        return 0

    @classmethod
    def trains(cls) -> bool:
        """Whether `fit` does anything."""
        return cls.fit is not ConfidenceMethod.fit

    def params(self) -> dict[str, object]:
        """The arguments of `__init__` as they are stored."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def fitted(self) -> dict[str, Any]:
        """Fitted attributes: every attribute that ends in `_`."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}

    def save(self, folder: Path) -> None:
        """Write what `fit` learned: arrays to `fitted.safetensors`, the rest to `fitted.json`, adapters by folder."""
        from safetensors.numpy import save_file

        arrays: dict[str, npt.NDArray[Any]] = {}
        plain = _split_arrays(self.fitted(), "", arrays)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "fitted.safetensors")
        (folder / "fitted.json").write_text(json.dumps(plain), encoding="utf-8")

    def load(self, folder: Path) -> Self:
        """Read back what `save` wrote. Returns self.

        Raises:
            UserError: the folder of an adapter is gone.
        """
        from safetensors.numpy import load_file

        arrays = load_file(folder / "fitted.safetensors")
        plain = json.loads((folder / "fitted.json").read_text(encoding="utf-8"))
        for key, value in plain.items():
            setattr(self, key, _join_arrays(value, arrays, f"/{key}"))
        return self


def given(method: ConfidenceMethod, batch: Batch, *, allow_nan: bool = False) -> npt.NDArray[np.float64]:
    """Confidences or scores `(n,)` of a method, as float64: runs and checks ask for them in this one way.

    Args:
        method: fitted, or one that learns nothing.
        batch: n answers.
        allow_nan: as for `checked`.

    Raises:
        ContractError: it is not what the method has to give.
        Exception: whatever the method raises.
    """
    who, values = f"{method.name}.predict", method.predict(batch)
    if method.output == "score":
        return checked_scores(who, values, batch.ids)
    return checked(who, values, len(batch), allow_nan=allow_nan)
