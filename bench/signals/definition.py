"""All that the harness knows of a signal, in one place: how it is named, read, stored, loaded, and planted in checks.

Each signal of `bench.api` has a module of this room. Its `DEFINITION` is a `PassDefinition` where the signal is taken
from a pass over the model, else a `Definition`, which may have others as `sources`. Modules are found by themselves.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from bench import signals as room
from bench.api import ContractError, FloatArray, Format, Ragged, Signal, Task
from bench.api.batch import Column
from bench.model.continuation_specs import AnswerSpan, Arrays, ContinuationSpec, PendingArrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.split_data import Agreement, Comparer, Relater, SplitData, StoredSplit
    from bench.signals.synthetic import World

S = TypeVar("S", bound=Signal)


@dataclass(frozen=True)
class SignalDefinition(ABC, Generic[S]):
    """Definition of a signal, whatever it is taken from."""

    declares: ClassVar[type[Signal]]
    """The class in `bench.api` whose instances it is about."""

    signal: S

    def lacking(self, fmt: Format) -> str | None:
        """Why tasks of a format don't have it; None where they do."""
        return None

    def hindrance(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Why a task on a model does not have it; None where it does."""
        return self.lacking(task.format)

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether it depends on the answer; otherwise all answers to a question of a format have one value."""
        return True

    @property
    def own_adapter(self) -> bool:
        """Whether it is read through the adapter that a method trained."""
        return False

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """The signals from which it is made in tasks of a format, and which lie in the store."""
        return ()

    def note(self, split_data: SplitData) -> str:
        """Words for a reader of results, beside its name; mostly none."""
        return ""

    def asked(self, asking: PromptSettings, task: Task, prompts: PromptTokeniser) -> PromptSettings:
        """The settings of a split, with what it asks a model beside the question."""
        return asking

    @abstractmethod
    def column(self, split: StoredSplit) -> Column:
        """Its values for all questions of a split, in the order of the shards."""

    def agreement(self, split: StoredSplit, comparer: Comparer) -> Agreement | None:
        """Whether its samples say what the answers say; None for a signal that holds none."""
        return None

    def relation(self, split: StoredSplit, relater: Relater) -> FloatArray | None:
        """Relations among its samples; None for a signal that has none."""
        return None

    @abstractmethod
    def planted(self, world: World) -> Column:
        """Values in which right answers can be told from wrong ones, for the contract checks."""


@dataclass(frozen=True)
class PassDefinition(SignalDefinition[S]):
    """Definition of a signal that is taken from a pass; the `SignalSpec` that the extractor is handed."""

    @property
    @abstractmethod
    def growth(self) -> ContinuationSpec:
        """Growth that has to be read for it, and so its cost."""

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether it needs the answer to be read."""
        return self.growth.answer > AnswerSpan.PROMPT_END

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the depth at which it reads states, beside the last state."""
        return frozenset()

    @property
    def ragged(self) -> bool:
        """Whether a question has any number of rows; otherwise it has one value."""
        return False

    @property
    def unanswered(self) -> Arrays | None:
        """The value of a question without an answer, where that is known without reading anything; else None."""
        return None

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Itself, unless another one tells it already."""
        return (self,)

    def name(self, asking: PromptSettings, seed: int) -> str:
        """The name in keys of the store: the signal, with what it depends on besides prompt and answer."""
        return repr(self.signal)

    @abstractmethod
    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Values of the questions of each distinct prompt of a pass; those on the device may stay there."""

    def column(self, split: StoredSplit) -> Column:
        """Its values as they are stored, the shards joined."""
        arrays = split.arrays(self.signal)
        return Ragged(arrays["values"], arrays["offsets"]) if self.ragged else arrays["values"]


@cache
def definitions() -> Mapping[type[Signal], type[SignalDefinition[Any]]]:
    """Class of `bench.api` -> the definition of its signals, from all modules of this room."""
    modules = [import_module(f"{room.__name__}.{module.name}") for module in pkgutil.iter_modules(room.__path__)]
    found = [module.DEFINITION for module in modules if hasattr(module, "DEFINITION")]
    return {definition.declares: definition for definition in found}


def definition(signal: Signal) -> SignalDefinition[Any]:
    """The definition of a signal.

    Raises:
        ContractError: this room has none.
    """
    found = definitions().get(type(signal))
    if found is None:
        raise ContractError(f"expected a module of bench.signals that defines {signal!r}, found none; add one")
    return found(signal)


def pass_definitions(signals: Iterable[Signal]) -> dict[Signal, PassDefinition[Any]]:
    """Signal -> its definition, for those that are taken from a pass, in the order of their names."""
    found = ((signal, definition(signal)) for signal in sorted(signals, key=repr))
    return {signal: each for signal, each in found if isinstance(each, PassDefinition)}


def read_from_model(signals: Iterable[Signal]) -> frozenset[Signal]:
    """Signals among these that need a forward pass of the frozen model: they have sources, and no adapter is on."""
    found = ((signal, definition(signal)) for signal in signals)
    return frozenset(signal for signal, each in found if each.sources(Format.OPEN, 1) and not each.own_adapter)


def reads_own_adapter(signals: Iterable[Signal]) -> bool:
    """Whether any of them is read through an adapter that the method trained."""
    return any(definition(signal).own_adapter for signal in signals)


def stored(signals: Iterable[Signal], fmt: Format, max_new_tokens: int) -> frozenset[Signal]:
    """The signals from which these are made, and which lie in the store."""
    made = (definition(signal).sources(fmt, max_new_tokens) for signal in signals)
    return frozenset(source.signal for sources in made for source in sources)


def growths_of(signals: Iterable[Signal]) -> frozenset[ContinuationSpec]:
    """Growths that these signals need, each by itself; an empty one still needs the prompts."""
    return frozenset(each.growth for each in pass_definitions(signals).values())


def growth_of(signals: Iterable[Signal]) -> ContinuationSpec:
    """Growth that these signals need together after the prompts."""
    return ContinuationSpec.union(each.growth for each in pass_definitions(signals).values())
