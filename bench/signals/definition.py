"""Base classes of signal definitions, each of which names, computes, loads and synthesizes one signal.

Each signal class of `bench.api` has a module in this package, whose constant `DEFINITION` is its definition class: a
subclass of `PassDefinition` if the signal comes from forward passes of the model, else of `SignalDefinition`. A signal
without forward passes of its own may be computed from stored signals, its `sources`. `definitions` imports all modules
of this package to find the definition classes.
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
from bench.model.continuation_specs import AnswerSpan, Arrays, Continuations, PendingArrays
from bench.servers.readings import Ability

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.split_data import Agreement, CompareSamples, RelateTexts, SplitData, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

S = TypeVar("S", bound=Signal)


@dataclass(frozen=True)
class SignalDefinition(ABC, Generic[S]):
    """Definition of one signal: how it is computed, loaded and synthesized. Each signal class has its own subclass."""

    declares: ClassVar[type[Signal]]
    """Signal class of `bench.api` that this class defines."""

    signal: S

    def unsupported(self, fmt: Format) -> str | None:
        """Return the reason why tasks of a format don't have the signal; None if they have it."""
        return None

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return the reason why the signal can't be computed for a task on the run's model; None if it can.

        Args:
            task: the task.
            prompts: tokeniser of the task's prompts for this model.
        """
        return self.unsupported(task.format)

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the signal depends on the model's answer."""
        return True

    def needs(self, fmt: Format) -> Ability:
        """Return what a model's server has to give for the signal; hidden states if not said."""
        return Ability.STATES

    def prefers(self, fmt: Format) -> Ability:
        """Return what a server has to give for exact values; if it gives only what `needs` says, some are bounds."""
        return self.needs(fmt)

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the model's depth at which the signal reads hidden states.

        The last layer (1.0) is always available and need not be listed.
        """
        return frozenset()

    @property
    def needs_adapter(self) -> bool:
        """Whether the signal is computed with the adapter that the method trained."""
        return False

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored signals from which this signal is computed.

        Args:
            fmt: format of the task.
            max_new_tokens: length limit of the answers in tokens.
        """
        return ()

    def note(self, split_data: SplitData) -> str:
        """Return a remark that results show beside the signal's name; empty for most signals."""
        return ""

    def extend_settings(self, settings: PromptSettings, task: Task, prompts: PromptTokeniser) -> PromptSettings:
        """Return the prompt settings with the token ids added that this signal needs, e.g. those of a user turn."""
        return settings

    @abstractmethod
    def column(self, split: StoredSplit) -> Column:
        """Return the signal's values for the questions of a stored split, in the order of `split.rows`."""

    def agreement(self, split: StoredSplit, compare: CompareSamples) -> Agreement | None:
        """Return which samples agree with the answer to their question. None for all signals but `SampleAgreement`."""
        return None

    def relation(self, split: StoredSplit, relate: RelateTexts) -> FloatArray | None:
        """Return how samples and answer of each question are related as texts. None for all signals but `Related`."""
        return None

    @abstractmethod
    def synthesize(self, data: SyntheticQuestions) -> Column:
        """Return synthetic values of the signal, which depend on the labels; they check methods without a model."""


@dataclass(frozen=True)
class PassDefinition(SignalDefinition[S]):
    """Definition of a signal that comes from forward passes; a `SignalSpec` for the extractor, which runs them."""

    bounds_are: ClassVar[str] = "questions with a word outside the likeliest tokens, which has its upper bound"
    """Count of questions for which a model's server gave bounds instead of values, as results show it."""
    bounds_leave: ClassVar[str] = "the share of the likeliest word is uncertain by"
    """What the bounds leave open, before a number."""

    @property
    @abstractmethod
    def continuations(self) -> Continuations:
        """What the model has to read after the prompt for this signal; the signal's cost depends on it."""

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the model has to read the answer's tokens for this signal."""
        return self.continuations.answer > AnswerSpan.PROMPT_END

    @property
    def ragged(self) -> bool:
        """Whether questions may have different numbers of rows in the stored arrays, e.g. one per token of a text.

        If not, each question has one row.
        """
        return False

    @property
    def unanswered(self) -> Arrays | None:
        """Arrays for a question with an empty answer; None if they need a forward pass."""
        return None

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return this definition alone, since its own signal is stored. Subclasses may return other signals' ones."""
        return (self,)

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, without the digests of options and question ids (added by `Reader`).

        The name shows all else that the signal depends on besides prompt and answer.
        """
        return repr(self.signal)

    @abstractmethod
    def take(self, batch: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return the arrays of each question of a decode batch; tensors may stay on the device.

        The outer list has an item for each distinct prompt, the inner one for each question with that prompt.
        """

    def ask(self, requests: QuestionRequests) -> Mapping[str, Any]:
        """Return the arrays (of numpy or torch) of one question, as `take` does, from a model's server.

        Raises:
            NotImplementedError: no server gives the signal, as `needs` says.
        """
        raise NotImplementedError(repr(self.signal))

    def column(self, split: StoredSplit) -> Column:
        """Return the stored values of the split's selected questions, in the order of `split.rows`."""
        arrays = split.arrays(self.signal)
        return Ragged(arrays["values"], arrays["offsets"]) if self.ragged else arrays["values"]


@cache
def definitions() -> Mapping[type[Signal], type[SignalDefinition[Any]]]:
    """Return a mapping from signal class to definition class, from all modules of this package."""
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
    """Return signal -> definition for those of the signals that come from forward passes, sorted by signal."""
    pairs = ((signal, definition(signal)) for signal in sorted(signals, key=repr))
    return {signal: spec for signal, spec in pairs if isinstance(spec, PassDefinition)}


def read_from_model(signals: Iterable[Signal]) -> frozenset[Signal]:
    """Return those signals that are computed from forward passes of the frozen model, without a method's adapter."""
    pairs = ((signal, definition(signal)) for signal in signals)
    return frozenset(signal for signal, spec in pairs if spec.sources(Format.OPEN, 1) and not spec.needs_adapter)


def uses_adapter(signals: Iterable[Signal]) -> bool:
    """Return whether any of the signals needs the adapter that the method trained."""
    return any(definition(signal).needs_adapter for signal in signals)


def required_stored_signals(signals: Iterable[Signal], fmt: Format, max_new_tokens: int) -> frozenset[Signal]:
    """Return the stored signals from which the given signals are computed."""
    source_groups = (definition(signal).sources(fmt, max_new_tokens) for signal in signals)
    return frozenset(source.signal for sources in source_groups for source in sources)


def continuation_specs_of(signals: Iterable[Signal]) -> frozenset[Continuations]:
    """Return what the model has to read after the prompts for the given signals, without repetitions.

    The set has an empty item if some signal needs only logits at the prompts' ends. The item of a signal that needs
    hidden states there is not empty. Signals without forward passes of their own are ignored.
    """
    return frozenset(each.continuations for each in pass_definitions(signals).values())


def continuations_of(signals: Iterable[Signal]) -> Continuations:
    """Return the union of what the model has to read after the prompts for the given signals."""
    return Continuations.union(each.continuations for each in pass_definitions(signals).values())
