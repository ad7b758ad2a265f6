"""Base classes of signal definitions: how a signal is named, computed, stored, loaded, and synthesized for checks.

Each signal of `bench.api` has a module in this package. Its `DEFINITION` is a `PassDefinition` where the signal comes
from a forward pass, else a `SignalDefinition`, which may be computed from other signals, its `sources`. Modules are
discovered by import.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from bench import signals as package
from bench.api import ContractError, FloatArray, Format, Ragged, Signal, Task
from bench.api.batch import Column
from bench.model.continuation_specs import AnswerSpan, Arrays, ContinuationSpec, PendingArrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.split_data import Agreement, CompareSamples, RelateTexts, SplitData, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

S = TypeVar("S", bound=Signal)


@dataclass(frozen=True)
class SignalDefinition(ABC, Generic[S]):
    """Definition of a signal."""

    declares: ClassVar[type[Signal]]
    """Class in `bench.api` that it defines."""

    signal: S

    def unsupported(self, fmt: Format) -> str | None:
        """Return why tasks of a format don't have the signal; None where they do."""
        return None

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why a task on this model does not have the signal; None where it does."""
        return self.unsupported(task.format)

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the signal depends on the answer; otherwise all answers to a question have the same value."""
        return True

    @property
    def needs_adapter(self) -> bool:
        """Whether the signal is computed with the adapter that the method trained."""
        return False

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the stored signals from which this one is computed, for tasks of a format."""
        return ()

    def note(self, split_data: SplitData) -> str:
        """Return a remark for readers of results, shown beside the signal's name; empty for most."""
        return ""

    def extend_settings(self, asking: PromptSettings, task: Task, prompts: PromptTokeniser) -> PromptSettings:
        """Return the prompt settings, extended by the token ids that this signal appends after the answer."""
        return asking

    @abstractmethod
    def column(self, split: StoredSplit) -> Column:
        """Return the values for the questions of a stored split, in its order of rows."""

    def agreement(self, split: StoredSplit, compare: CompareSamples) -> Agreement | None:
        """Return whether the samples agree with the answers; None for a signal without samples."""
        return None

    def relation(self, split: StoredSplit, relate: RelateTexts) -> FloatArray | None:
        """Return the relations among the samples; None for a signal without relations."""
        return None

    @abstractmethod
    def synthesize(self, data: SyntheticQuestions) -> Column:
        """Return synthetic values that separate right from wrong answers, for the contract checks."""


@dataclass(frozen=True)
class PassDefinition(SignalDefinition[S]):
    """Definition of a signal that comes from a forward pass: a `SignalSpec` for the extractor."""

    @property
    @abstractmethod
    def continuations(self) -> ContinuationSpec:
        """Continuation of the prompt that has to be read for this signal; it determines the cost."""

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the answer's tokens have to be read."""
        return self.continuations.answer > AnswerSpan.PROMPT_END

    @property
    def depths(self) -> frozenset[float]:
        """Depths, as fractions of the layers, at which it reads hidden states besides the last state."""
        return frozenset()

    @property
    def ragged(self) -> bool:
        """Whether the number of rows differs from question to question; otherwise each has one value."""
        return False

    @property
    def unanswered(self) -> Arrays | None:
        """Value for a question without an answer, where it is known without a forward pass; else None."""
        return None

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return itself, unless another stored signal already contains it."""
        return (self,)

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Return the name in store keys: the signal, and what it depends on besides prompt and answer."""
        return repr(self.signal)

    @abstractmethod
    def take(self, batch: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return the values of a decode batch by distinct prompt and question; tensors may stay on the device."""

    def column(self, split: StoredSplit) -> Column:
        """Return the stored values, the shards concatenated."""
        arrays = split.arrays(self.signal)
        return Ragged(arrays["values"], arrays["offsets"]) if self.ragged else arrays["values"]


@cache
def definitions() -> Mapping[type[Signal], type[SignalDefinition[Any]]]:
    """Return signal class -> definition class, from all modules of this package."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    classes = [module.DEFINITION for module in modules if hasattr(module, "DEFINITION")]
    return {definition.declares: definition for definition in classes}


def definition(signal: Signal) -> SignalDefinition[Any]:
    """Return the definition of a signal.

    Raises:
        ContractError: no module of this package defines it.
    """
    cls = definitions().get(type(signal))
    if cls is None:
        raise ContractError(f"expected a module of bench.signals that defines {signal!r}, found none; add one")
    return cls(signal)


def pass_definitions(signals: Iterable[Signal]) -> dict[Signal, PassDefinition[Any]]:
    """Return signal -> definition for the signals that come from a forward pass, in the order of their names."""
    pairs = ((signal, definition(signal)) for signal in sorted(signals, key=repr))
    return {signal: spec for signal, spec in pairs if isinstance(spec, PassDefinition)}


def read_from_model(signals: Iterable[Signal]) -> frozenset[Signal]:
    """Return the signals that need a forward pass of the frozen model: they have sources and need no adapter."""
    pairs = ((signal, definition(signal)) for signal in signals)
    return frozenset(signal for signal, spec in pairs if spec.sources(Format.OPEN, 1) and not spec.needs_adapter)


def uses_adapter(signals: Iterable[Signal]) -> bool:
    """Return whether any of the signals needs the adapter that the method trained."""
    return any(definition(signal).needs_adapter for signal in signals)


def stored_sources(signals: Iterable[Signal], fmt: Format, max_new_tokens: int) -> frozenset[Signal]:
    """Return the stored signals from which these signals are computed."""
    source_groups = (definition(signal).sources(fmt, max_new_tokens) for signal in signals)
    return frozenset(source.signal for sources in source_groups for source in sources)


def continuation_specs_of(signals: Iterable[Signal]) -> frozenset[ContinuationSpec]:
    """Return the continuations that the signals need, one for each; an empty one still needs the prompts."""
    return frozenset(each.continuations for each in pass_definitions(signals).values())


def continuations_of(signals: Iterable[Signal]) -> ContinuationSpec:
    """Return the union of the continuations that the signals need after the prompts."""
    return ContinuationSpec.union(each.continuations for each in pass_definitions(signals).values())
