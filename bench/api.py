"""The contract between the harness and its plugins: signals, batches, `ConfidenceMethod`, `Task`, and their decorators.

Everything a method or a task may import from the harness is here. The module needs numpy and the standard library only.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from bench.early_stopping import POINTS, EarlyStopping
from bench.errors import ContractError, UntrainableError, UserError
from bench.protocol import Protocol as SharedProtocol
from bench.protocol import ValidationRule
from bench.records import Format, PromptStyle, Question, Split

if TYPE_CHECKING:
    import torch

__all__ = [
    "POINTS", "Adapter", "AdapterModel", "AdapterRef", "At", "Batch", "BoolArray", "ChoiceLogits", "ConfidenceMethod",
    "Context", "ContractError", "DataCard", "EarlyStopping", "FloatArray", "Format", "Hidden", "IntArray",
    "ModelFacts", "Needs", "Of", "OutputHead", "Preset", "Projection", "PromptStyle", "QueryLogits", "Question",
    "Ragged", "Row", "RunFacts", "SampleAgreement", "Signal", "Source", "Split", "Task", "TaskCard", "TokenIds",
    "TrainAdapter", "Unembedding", "UntrainableError", "UserError", "Validation", "ValidationRule", "method", "task",
]  # fmt: skip

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]


# --- signals ----------------------------------------------------------------------------------------------------------


class At(enum.Enum):
    """Where in the sequence a hidden state is read, for a prompt of n tokens and an answer of L tokens."""

    PROMPT_END = "prompt_end"
    """Position n-1, the state that predicts the first answer token; one row per question."""
    ANSWER_PREDICTING = "answer_predicting"
    """Positions n-1 ... n+L-2: row i predicts answer token i; L rows per question."""
    ANSWER_END = "answer_end"
    """Position n+L-1, after the last answer token was read back in; one row per question."""
    GOLD_PREDICTING = "gold_predicting"
    """As ANSWER_PREDICTING, for the right answer put after the prompt: the right letter, or the right text."""
    WRONG_PREDICTING = "wrong_predicting"
    """As GOLD_PREDICTING, for all wrong options one after the other; `Ragged.owner` says which option a row is of."""


class Of(enum.Enum):
    """Which token ids are meant."""

    PROMPT = "prompt"
    """The rendered prompt with its generation prompt."""
    ANSWER = "answer"
    """The generated ids themselves, not re-tokenised text; trailing end tokens removed."""
    QUERY = "query"
    """The whole conversation: prompt, answer, and the self-check query after it."""
    GOLD = "gold"
    """The right answer as the model would have to say it: the right letter, or the right text."""
    WRONG = "wrong"
    """All wrong options, one after the other; `Ragged.owner` says which option an id is of."""


class Adapter(enum.Enum):
    """Through which weights a signal is read."""

    NONE = "none"
    """The frozen backbone's own."""
    OWN = "own"
    """With the adapter that this method trained (its `adapter_`), after `fit`."""


@dataclass(frozen=True, repr=False)
class Signal:
    """Something measured once on the frozen backbone; its fields are part of its identity."""

    def __repr__(self) -> str:
        """As it would be written: fields that have their default are left out."""
        shown = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        texts = (f"{name}={value if isinstance(value, enum.Enum) else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, repr=False)
class Hidden(Signal):
    """Hidden states, float32: `(n, d)`, or for `..._PREDICTING` a `Ragged` of `(t_i, d)` rows.

    `depth` is a fraction of the number of blocks L: the output of block `int(depth * L)` is read; 1.0 is the last
    state after the final norm.
    """

    depth: float = 1.0
    at: At = At.ANSWER_PREDICTING


@dataclass(frozen=True, repr=False)
class TokenIds(Signal):
    """Token ids, a `Ragged` of int64 with `(t_i,)` per question; costs no forward pass."""

    of: Of = Of.ANSWER


@dataclass(frozen=True, repr=False)
class ChoiceLogits(Signal):
    """`(n, k)` float32 logits of the option letters at the prompt's end; -inf where a question has fewer options."""


@dataclass(frozen=True, repr=False)
class QueryLogits(Signal):
    """`(n, 2)` float32 logits of (no, yes) after the self-check query that follows the answer (methods.md §2.0)."""

    adapter: Adapter = Adapter.NONE


@dataclass(frozen=True, repr=False)
class SampleAgreement(Signal):
    """`(n, N)` bool: does sample j agree with the greedy answer (methods.md §2.14).

    A choice answer agrees by its letter (a sampled non-letter disagrees), an open one by the judge of the run. Samples
    are drawn with a generator keyed by (seed, question id, sample), so that they depend neither on batches nor on
    resuming.
    """

    n: int = 10
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, repr=False)
class Unembedding(Signal):
    """The model's output head, an `OutputHead`; shared, never copied to disk."""


_GOLD = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING, Of.GOLD, Of.WRONG})


def tells_gold(signal: Signal) -> bool:
    """Whether a signal holds the right answer, or all others: such signals exist in `fit` only (methods.md §0.21)."""
    place = signal.at if isinstance(signal, Hidden) else signal.of if isinstance(signal, TokenIds) else None
    return place in _GOLD


# --- arrays -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different length in one array: row i is `values[offsets[i]:offsets[i + 1]]`.

    Shapes: values `(sum of t_i, ...)`, offsets `(n + 1,)` int64 starting at 0.
    """

    values: npt.NDArray[Any]
    offsets: IntArray
    owner: IntArray | None = None
    """`(sum of t_i,)` which option of its question a value belongs to; None where there is only one."""

    @classmethod
    def of(cls, rows: Sequence[npt.ArrayLike]) -> Ragged:
        """Join rows; at least one row is expected, each with the same trailing shape."""
        arrays = [np.asarray(row) for row in rows]
        return cls(np.concatenate(arrays), np.cumsum([0, *(len(a) for a in arrays)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> IntArray:
        """`(n,)` row lengths."""
        return np.diff(self.offsets)

    def take(self, rows: IntArray) -> Ragged:
        """The given rows, in the given order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)  # position inside its row, for each value
        index = np.repeat(self.offsets[rows], lengths) + within
        return Ragged(self.values[index], offsets, None if self.owner is None else self.owner[index])


@dataclass(frozen=True, eq=False)
class OutputHead:
    """How a final hidden state h becomes logits: u = scale * (W h + b), capped to c * tanh(u / c) where c is set."""

    weight: torch.Tensor
    """(v, d)"""
    bias: torch.Tensor | None = None
    """(v,)"""
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of shape `(..., v)` from hidden states `(..., d)`, in float32."""
        weight = self.weight.float()
        u = hidden.float() @ weight.T
        if self.bias is not None:
            u = u + self.bias.float()
        u = u * self.scale
        return u if self.softcap is None else self.softcap * (u / self.softcap).tanh()


Column = npt.NDArray[Any] | Ragged | OutputHead


def _read_only(column: Column) -> Column:
    if isinstance(column, Ragged):
        owner = None if column.owner is None else _frozen_view(column.owner)
        return Ragged(_frozen_view(column.values), _frozen_view(column.offsets), owner)
    return column if isinstance(column, OutputHead) else _frozen_view(column)


def _frozen_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


class Batch:
    """Questions with their signals, as a method sees them; arrays are read-only, labels exist only in `fit`."""

    def __init__(
        self, ids: Sequence[str], columns: Mapping[Signal, Column], correct: npt.NDArray[np.bool_] | None = None
    ) -> None:
        self.ids = tuple(ids)
        self._columns = {signal: _read_only(column) for signal, column in columns.items()}
        self._correct = None if correct is None else _frozen_view(np.asarray(correct, dtype=np.bool_))
        self._reads: set[str] = set()

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, signal: Unembedding) -> OutputHead: ...
    @overload
    def __getitem__(self, signal: TokenIds) -> Ragged: ...
    @overload
    def __getitem__(self, signal: ChoiceLogits | QueryLogits) -> FloatArray: ...
    @overload
    def __getitem__(self, signal: SampleAgreement) -> BoolArray: ...
    @overload
    def __getitem__(self, signal: Signal) -> Any: ...
    def __getitem__(self, signal: Signal) -> Any:
        """The signal's values for these questions.

        Raises:
            ContractError: the signal was not declared in `needs`.
        """
        if signal not in self._columns:
            declared = ", ".join(sorted(map(repr, self._columns))) or "none"
            raise ContractError(f"{signal!r} was read but not declared in needs (declared: {declared})")
        return self._columns[signal]

    @property
    def correct(self) -> BoolArray:
        """`(n,)` bool: was the answer right. Only in `fit`.

        Raises:
            ContractError: read in `predict`.
        """
        self._reads.add("correct")
        if self._correct is None:
            raise ContractError("batch.correct was read outside fit; labels exist only in fit")
        return self._correct

    @property
    def labels_read(self) -> bool:
        """Whether `correct` was asked for, of this batch or of a part of it; for the result's account of labels."""
        return bool(self._reads)

    @property
    def signals(self) -> frozenset[Signal]:
        """The signals that can be read."""
        return frozenset(self._columns)

    def take(self, rows: npt.ArrayLike) -> Batch:
        """The given rows (indices or a bool mask), in the given order."""
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.int64)
        columns: dict[Signal, Column] = {}
        for signal, column in self._columns.items():
            if isinstance(column, OutputHead):
                columns[signal] = column
            else:
                columns[signal] = column.take(index) if isinstance(column, Ragged) else column[index]
        correct = None if self._correct is None else self._correct[index]
        part = Batch([self.ids[i] for i in index], columns, correct)
        part._reads = self._reads
        return part


# --- methods ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """The signals a method reads: nothing else can be read."""

    fit: frozenset[Signal] = frozenset()
    predict: frozenset[Signal] = frozenset()


def _is_plain(signal: Signal) -> bool:
    """Whether a signal is one of these classes themselves; a subclass could be one thing here and another when read."""
    place = signal.at if isinstance(signal, Hidden) else signal.of if isinstance(signal, TokenIds) else None
    return type(signal) in Signal.__subclasses__() and (place is None or type(place) in {At, Of})


def validation_signals(needs: Needs) -> frozenset[Signal]:
    """What `ctx.validation` holds: the signals of `needs.predict`, and the token ids of `needs.fit`.

    Without what tells the right answer, and without what goes through the method's own adapter, which is not there yet.
    """
    read = needs.predict | {signal for signal in needs.fit if isinstance(signal, TokenIds)}
    return frozenset(s for s in read if not tells_gold(s) and s != QueryLogits(Adapter.OWN))


LEARNED_SPLITS: tuple[Split, ...] = ("train", "validation")
"""Where `fit` may learn."""


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


class Projection(NamedTuple):
    """A linear layer of one transformer block."""

    name: str
    """Its last name, e.g. `q_proj`."""
    inputs: int
    outputs: int
    part: Literal["query", "value", ""] = ""
    """What the attention uses it for; empty for any other."""


@dataclass(frozen=True)
class ModelFacts:
    """Shapes of a backbone, as a method may need them before anything is loaded."""

    name: str
    hidden_size: int
    vocab_size: int
    """Rows of the output head, padding rows included."""
    n_layers: int
    projections: tuple[Projection, ...] = ()
    """Linear layers of all blocks, in order; without query and value where these could not be told from the rest."""


@dataclass(frozen=True)
class RunFacts:
    """What a method may ask before it decides to be skipped."""

    model: ModelFacts
    task: str
    format: Format
    n_train: int
    """Labelled answers that `fit` would see; 0 where the method does not learn or nothing is there to learn from."""


@dataclass(frozen=True)
class AdapterRef:
    """A trained adapter in peft's format."""

    folder: Path
    fingerprint: str
    """Digest of its weights and configuration; part of the key of everything read through it."""


class AdapterModel(Protocol):
    """The backbone with an adapter in training, as a loss function sees it.

    A loss function is called as `loss(model, examples, settings)` with some of the examples of a batch and returns the
    sum of their losses, a scalar tensor with gradient. It must not depend on which examples come together.
    """

    @property
    def verdict_ids(self) -> tuple[int, int]:
        """Token ids of (no, yes) after the self-check query."""

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Next-token logits at the last positions of each sequence; the output head runs on these alone.

        Sequences of one call that begin alike are computed together; what they share is read once.

        Args:
            sequences: token ids.
            last: `(n,)` how many positions are read at the end of each.
            adapted: False for the frozen model: the same weights without adapter, dropout and gradient.

        Returns:
            `(sum of last, v)` float32, sequence after sequence.
        """


class Validation(NamedTuple):
    """What an adapter's training is stopped by."""

    confidence: str
    """A pure function as `module:name`, called as `confidence(model, examples, settings)`; returns `(n,)` in [0, 1]."""
    examples: Mapping[str, Ragged | npt.NDArray[Any]]
    """Columns as in training; among them `correct` `(n,)` bool."""


class TrainAdapter(Protocol):
    """Trains a LoRA adapter on the backbone of the run, in a process of its own."""

    def __call__(
        self,
        *,
        loss: str,
        examples: Mapping[str, Ragged | npt.NDArray[Any]],
        settings: Mapping[str, object],
        validation: Validation | None = None,
    ) -> AdapterRef:
        """Train and save.

        Args:
            loss: a pure function as `module:name`, e.g. `methods._shared.lora:ct_loss`; see `AdapterModel`.
            examples: name -> column with one row for each example; the first is a `Ragged` of token ids, and examples
                that begin alike in it are computed together.
            settings: LoRA, optimiser and schedule as `bench.launch.job.Recipe` names them, and what the loss reads.
            validation: examples to choose the step by, as `EarlyStopping` does; None keeps the last step.

        Raises:
            UserError: training failed; the message holds the end of its log.
        """


@dataclass(frozen=True)
class Context:
    """What `fit` gets besides data: the only source of randomness, device and shared numbers."""

    seed: int
    """Derived from the run's seed, the method, the model and the task."""
    format: Format = Format.CHOICE
    device: str = "cpu"
    protocol: SharedProtocol = field(default_factory=SharedProtocol)
    train_adapter: TrainAdapter | None = None
    """None where there is no backbone to adapt."""
    validation: Batch | None = None
    """Labelled answers of the validation split, with the signals of `needs.predict` and the token ids of `needs.fit`;
    None where the preset keeps the last step, where a method learns on that split, or where there is none."""
    trainings: list[EarlyStopping] = field(default_factory=list, repr=False, compare=False)
    """What `early_stopping` has given out; read by the harness after `fit`."""

    @property
    def rng(self) -> np.random.Generator:
        """A generator at the start of this context's stream; each access starts it anew."""
        return np.random.default_rng(self.seed)

    def early_stopping(
        self,
        limit: int,
        *,
        name: str = "",
        published: int = 0,
        points: int = POINTS,
        epochs_per_step: float = 0.0,
    ) -> EarlyStopping:
        """The steps of a training, which end when the validation answers say so; arguments as `EarlyStopping`'s."""
        stopping = EarlyStopping(
            limit, self.validation, name=name, published=published, points=points, epochs_per_step=epochs_per_step
        )
        self.trainings.append(stopping)
        return stopping


Preset = Mapping[str, object]


class ConfidenceMethod(ABC):
    """Turns what a model did into a probability that its answer is right.

    Its constants are the arguments of `__init__`, which stores them and does nothing else: a dataclass with a field for
    each, `@dataclass(kw_only=True, eq=False)`, does that. What `fit` learns is kept in attributes that end in `_`
    (numbers, strings, numpy arrays, an `AdapterRef`, or dicts from str to these).
    """

    name: ClassVar[str]
    """Set by `@method("...")`: the name on the command line, in file names and in tables."""
    reference: ClassVar[str]
    """Where the method comes from: "arXiv:..." or "doi:..."."""
    needs: ClassVar[Needs]
    fit_on: ClassVar[Split] = "train"
    """The split whose answers and labels `fit` gets."""
    draws: ClassVar[bool] = True
    """Whether `fit` draws at random, so that two seeds never give the same confidences; of no account without `fit`."""
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType({})
    """Preset name -> keyword arguments of `__init__`; one that is left out keeps its default. A method without presets
    runs as "defaults" under any."""
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})
    """Preset -> what its source does and this method does not, a sentence each; `bench show` lists them."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Contract check -> reason why this method may break it; an entry that is no longer needed fails."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Learn from labelled answers; the default learns nothing. Returns self.

        Raises:
            UntrainableError: these answers can't teach it anything; its cell is skipped with this reason.
        """
        del train, ctx
        return self

    @abstractmethod
    def predict(self, batch: Batch) -> FloatArray:
        """Confidences `(n,)` within [0, 1], higher = surer; one answer's value does not depend on the others."""

    def reads(self) -> Needs:
        """What this instance reads: `needs`, unless arguments change it."""
        return type(self).needs

    def skip(self, facts: RunFacts) -> str | None:
        """A reason not to run here, or None."""
        del facts
        return None

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
        """What `fit` learned: every attribute that ends in `_`."""
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
            setattr(self, key, _join_arrays(value, arrays))
        return self


def _split_arrays(value: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return {"array": path}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, AdapterRef):
        return {"adapter": str(value.folder), "fingerprint": value.fingerprint}
    if isinstance(value, Mapping):
        return {key: _split_arrays(item, f"{path}/{key}", arrays) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ContractError(
        f"fitted attribute {path.lstrip('/')!r} is a {type(value).__name__};"
        " only numbers, strings, arrays, adapters and dicts of them can be saved"
    )


def _join_arrays(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"array"}:
        return arrays[value["array"]]
    if set(value) == {"adapter", "fingerprint"}:
        return _adapter(Path(value["adapter"]), value["fingerprint"])
    return {key: _join_arrays(item, arrays) for key, item in value.items()}


def _adapter(folder: Path, fingerprint: str) -> AdapterRef:
    if not folder.is_dir():
        raise UserError(
            f"The folder of a trained adapter is gone ({folder.name[:12]}). It was in the cache; fit the method again."
        )
    return AdapterRef(folder, fingerprint)


# --- tasks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Where the rows of a data set come from; complete, or it does not construct."""

    license: str
    splits: Mapping[Split, str]
    """Our split -> the source's own split."""
    hub: str | None = None
    """Hub id of the data set; None for generated tasks."""
    config: str | None = None
    revision: str | None = None
    """Commit on the Hub, 40 hex digits; None with `unpinned_reason`."""
    unpinned_reason: str = ""
    folder: str = ""
    """Folder below `--data-dir` that holds `<source split>.parquet`."""
    files: str = ""
    """Path of a split's files in the Hub's repository, with `{split}`, where no configuration names them: the Parquet
    branch of a data set that was a script (revisions.md §1.2)."""

    def __post_init__(self) -> None:
        pinned = self.revision is not None and re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None
        if self.hub is not None and not pinned and not self.unpinned_reason:
            raise ContractError(
                f"card of {self.hub}: expected a revision of 40 hex digits, or None with unpinned_reason;"
                f" got {self.revision!r}"
            )
        if self.hub is not None and not self.folder:
            raise ContractError(f"card of {self.hub}: folder is empty; name the folder below --data-dir")


@dataclass(frozen=True, kw_only=True)
class TaskCard(DataCard):
    """What must be true of a task's rows, and, unless other cards say it, where they come from."""

    version: int
    """Raised by every fix that changes a number; reports refuse to mix versions."""
    sizes: Mapping[Split, int]
    """Questions expected per split."""
    options: tuple[int, int]
    """Smallest and largest number of options."""
    why: str
    """One sentence on choices that a reader would ask about."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.sizes) != set(self.splits):
            raise ContractError(
                f"task card: sizes name {sorted(self.sizes)}, splits name {sorted(self.splits)}; they must agree"
            )


@dataclass(frozen=True)
class Row:
    """One row of a source, with the words to name it in an error."""

    index: int
    where: str
    values: Mapping[str, Any]


class Source(Protocol):
    """Gives the rows of a task's splits: from the Hub, or from a folder of Parquet files."""

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> Sequence[Row]:
        """Rows of the split, with exactly these columns; each is made when it is asked for."""

    def has(self, card: DataCard, split: Split) -> bool:
        """Whether the split can be read here; a folder may lack a file that the Hub has."""


class Task(ABC):
    """A set of questions with one way to ask them."""

    name: ClassVar[str]
    """Set by `@task("...")`."""
    format: ClassVar[Format]
    card: ClassVar[TaskCard]
    style: ClassVar[PromptStyle]
    train_on: ClassVar[str] = ""
    """Task on whose train split methods learn unless `--train-on` names another; empty: itself."""
    draws_exemplars: ClassVar[bool] = False
    """Whether each prompt draws its exemplars from a large pool; else it shows the pool's first ones."""
    prompt_tokens: ClassVar[int | None] = None
    """Length above which a prompt loses exemplars; None: the model's context alone."""
    released: ClassVar[str] = ""
    """Folder of this task among the answers that the paper's authors released; empty: there are none."""

    def __init__(self, source: Source, protocol: SharedProtocol | None = None) -> None:
        self.source = source
        self.protocol = protocol or SharedProtocol()
        self.counts: dict[str, int] = {}
        """What was left out or is odd in the rows read so far, in words; shown with every result."""

    @abstractmethod
    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of a split, in the source's order.

        Raises:
            UserError: a row is not as the card says; names the file and the row.
        """

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Subject -> questions that may be shown as exemplars in its prompts; the default is the dev split."""
        pools: dict[str, list[Question]] = {}
        for question in self.questions("dev") if "dev" in self.card.splits else ():
            pools.setdefault(question.subject, []).append(question)
        return pools

    def style_of(self, question: Question) -> PromptStyle:
        """The words around a question; the default is the same for all."""
        del question
        return self.style

    def origins(self, split: Split) -> Sequence[tuple[DataCard, Split]]:
        """The data sets that a split is made of, each with its own split, for the result's provenance."""
        return [(self.card, split)] if self.card.hub is not None else []

    def provenance(self, split: Split) -> Mapping[str, str]:
        """What else the result must say of where rows come from, e.g. a file's digest; by default nothing."""
        del split
        return {}


# --- registration -----------------------------------------------------------------------------------------------------


class Declaration(NamedTuple):
    """A decorated class, before the registry has looked at it."""

    kind: str
    name: str
    plugin: type
    module: str


DECLARED: list[Declaration] = []
"""Filled by the decorators below, in import order; read by `bench.registry` only."""

P = TypeVar("P", bound=type)


def method(name: str) -> Callable[[P], P]:
    """Register a `ConfidenceMethod` under this name."""
    return _declare("method", name)


def task(name: str) -> Callable[[P], P]:
    """Register a `Task` under this name."""
    return _declare("task", name)


def _declare(kind: str, name: str) -> Callable[[P], P]:
    def decorate(plugin: P) -> P:
        plugin.name = name  # type: ignore[attr-defined]
        DECLARED.append(Declaration(kind, name, plugin, plugin.__module__))
        return plugin

    return decorate
