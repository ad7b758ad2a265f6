"""Methods that live in this process, the built-in and the installed ones: what they change is put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bench.api import Batch, ConfidenceMethod, Context, ContractError, OutputHead, UntrainableError, UserError
from bench.api.errors import PLUGINS, PluginError, ends_the_program, home_of, reason_of, told
from bench.results import provenance
from bench.run.isolation.guard import Isolation
from bench.run.isolation.state import kept


@dataclass(frozen=True)
class Here:
    """Calls methods in this process, and puts right what they change."""

    isolation: Isolation
    plugin: type[ConfidenceMethod]

    def call(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
        """See `Caller.call`.

        Raises:
            PluginError: whatever the method raised, but for the errors of `bench.api`.
            ContractError: it wrote into the output head.
        """
        work = getattr(self.plugin, verb)
        if self.isolation.busy:
            return work(method, *arguments)
        if (
            self.plugin.__module__.partition(".")[0] != provenance.METHODS
        ):  # those of this package write into nothing, as their tests say
            arguments = tuple(map(_own, arguments))
        has_head = _has_head(arguments)
        if has_head:
            self.isolation.head.given_to(method.name)
        outcome = self._watched(verb, lambda: work(method, *arguments))
        if not self.isolation.head.intact(whole=has_head):
            raise ContractError(
                f"{method.name} wrote into the weights of the model's output head in {verb}; copy them first"
            )
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def _watched(self, verb: str, work: Callable[[], Any]) -> Any:
        """Result of the work, or what it raised."""
        isolation, name = self.isolation, self.plugin.name
        isolation.busy = True
        try:
            with kept(lambda what, end: isolation.note(f"{name} changed {what} in {verb}; {end}")):
                return work()
        except BaseException as error:
            if ends_the_program(error):
                raise
            return _Raised(self._told(error))
        finally:
            isolation.busy = False

    def _told(self, error: BaseException) -> Exception:
        """The exception without frames; any other than those of `bench.api` in one line."""
        PLUGINS.info("%s", told(error))
        reason = reason_of(error, home_of(self.plugin))
        for kind in (UntrainableError, UserError, ContractError):
            if isinstance(error, kind):
                return kind(reason)
        return PluginError(reason)


def _own(argument: Any) -> Any:
    """A copy of a batch, or of the one in a context, that a plugin may write into; anything else as it is."""
    if isinstance(argument, Batch):
        return argument.own()
    if isinstance(argument, Context) and argument.validation is not None:
        return replace(argument, validation=argument.validation.own())
    return argument


@dataclass(frozen=True)
class _Raised:
    error: Exception


def _has_head(arguments: tuple[Any, ...]) -> bool:
    """Whether an output head is among what a method is given."""
    contexts = (each.validation for each in arguments if isinstance(each, Context))
    batches = [each for each in (*arguments, *contexts) if isinstance(each, Batch)]
    return any(isinstance(batch[signal], OutputHead) for batch in batches for signal in batch.signals)
