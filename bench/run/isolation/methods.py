"""Methods as a run has them: what they are asked is done in the process of their file, or in this one and watched."""

from __future__ import annotations

import itertools
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from bench.api import Batch, ConfidenceMethod, Context, ContractError, OutputHead, Unembedding
from bench.api.errors import PLUGINS, PluginError, ends_the_program, home_of
from bench.registry import module_of
from bench.results import provenance
from bench.run.isolation.guard import Isolation
from bench.run.isolation.messages import Failure, Learned, lent
from bench.run.isolation.process import Process
from bench.run.isolation.state import kept
from bench.store.sources import source_digest, with_imports

VERBS = ("fit", "predict", "save", "load", "fitted", "skip", "n_parameters")
"""Verbs that a run asks of an instance once it is checked."""
RARE = "oddities"
"""Verb that most methods don't have; they are not handed a batch for nothing."""
_NUMBER = "_number_in_its_process"


def guarded(plugin: type[ConfidenceMethod], isolation: Isolation, path: Path | None) -> type[ConfidenceMethod]:
    """A subclass of a method, with its arguments, its declarations and its names, whose verbs are called safely.

    Args:
        plugin: the method.
        isolation: of the run.
        path: file in which it was given; None for an installed one, which stays in this process.
    """
    caller = Here(isolation, plugin) if path is None else Apart(isolation, plugin, path)

    def called(verb: str) -> Callable[..., Any]:
        return lambda self, *arguments: caller.call(self, verb, arguments)

    names = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__wrapped__"] = plugin  # whose source is asked for
    has_rare = getattr(plugin, RARE) is not getattr(ConfidenceMethod, RARE)
    verbs = {verb: called(verb) for verb in (*VERBS, *([RARE] if has_rare else []))}
    members = {**names, **verbs, "trains": classmethod(lambda _cls: plugin.trains())}
    made: type[ConfidenceMethod] = types.new_class(plugin.__name__, (plugin,), exec_body=lambda of: of.update(members))
    return made


@dataclass(frozen=True)
class Here:
    """Calls methods in this process, the built-in and the installed ones, and puts right what they change."""

    isolation: Isolation
    plugin: type[ConfidenceMethod]

    def call(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Have a method do what its class says.

        Raises:
            PluginError: whatever the method raised, but for the errors of `bench.api`.
            ContractError: it wrote into the output head.
        """
        isolation, work = self.isolation, getattr(self.plugin, verb)
        if isolation.busy:
            return work(method, *arguments)
        ours = self.plugin.__module__.partition(".")[0] == provenance.METHODS
        if not ours:  # those of this package write into nothing, as their tests say
            arguments = tuple(map(_own, arguments))
        contexts = (each.validation for each in arguments if isinstance(each, Context))
        batches = [each for each in (*arguments, *contexts) if isinstance(each, Batch)]
        has_head = any(isinstance(batch[signal], OutputHead) for batch in batches for signal in batch.signals)
        if has_head:
            isolation.head.given_to(method.name)
        outcome = failure = None
        isolation.busy = True
        try:
            with kept(lambda what, end: isolation.note(f"{self.plugin.name} changed {what} in {verb}; {end}")):
                outcome = work(method, *arguments)
        except BaseException as error:
            if ends_the_program(error):
                raise
            failure = Failure.of(error, home_of(self.plugin))
            PLUGINS.info("%s", failure.trace)
        finally:
            isolation.busy = False
        # One that was given the head may have kept a view of it.
        if not isolation.head.intact(whole=not ours and method.name in isolation.head.seen_by):
            raise ContractError(
                f"{method.name} wrote into the weights of the model's output head in {verb}; copy them first"
            )
        if failure is not None:
            raise failure.error()
        return outcome


def _own(argument: Any) -> Any:
    """A copy of a batch, or of the one in a context, that a plugin may write into; anything else as it is."""
    if isinstance(argument, Batch):
        return argument.own()
    if isinstance(argument, Context) and argument.validation is not None:
        return replace(argument, validation=argument.validation.own())
    return argument


@dataclass
class Apart:
    """Calls the methods of a file in a process of its own."""

    isolation: Isolation
    plugin: type[ConfidenceMethod]
    path: Path
    _process: Process | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _learned: WeakValueDictionary[int, ConfidenceMethod] = field(default_factory=WeakValueDictionary)
    """Methods that learn or have learned, by their number; those that nobody has any more are gone."""
    _source: str = ""
    """Digest of the file, and of those that it imports, when the run began."""

    def __post_init__(self) -> None:
        """Remember the file as it is."""
        self._source = source_digest(with_imports(self.path))

    def call(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Have a method do what its class says.

        Raises:
            PluginError: whatever the method raised, but for the errors of `bench.api`; or its process is gone.
        """
        backbone = self.isolation.head.backbone
        if backbone is not None and backbone.device != "cpu":
            needs = method.reads()
            if any(isinstance(signal, Unembedding) for signal in needs.fit | needs.predict):
                return self._here(method, verb, arguments)
        number: int | None = vars(method).get(_NUMBER)
        if number is None and verb == "fitted":
            return {}
        if number is not None and verb in {"save", "predict", "fitted"} and not self.process.alive:
            raise PluginError(self.process.ended)
        self._require_unchanged()
        if verb in {"fit", "load"}:
            number = next(self._numbers)
            object.__setattr__(method, _NUMBER, number)
            self._learned[number] = method
        ctx: Context | None = arguments[1] if verb == "fit" else None
        train_adapter, asked = None, arguments
        if ctx is not None:
            train_adapter, plain = ctx.train_adapter, replace(ctx, validation=None, train_adapter=None)
            asked = (arguments[0], ctx.validation, plain, train_adapter is not None)

        def sent(argument: Any) -> Any:
            if isinstance(argument, Batch):
                return lent(argument, self.isolation.head_file)
            return argument.absolute() if isinstance(argument, Path) else argument

        answer = self.process.ask(
            self.plugin.name, verb, number, self.plugin.name, method.params(), list(self._learned), *map(sent, asked),
            serve=train_adapter,
        )  # fmt: skip
        if ctx is not None:
            learned: Learned = answer
            for batch, read in ((arguments[0], learned.labels_read), (ctx.validation, learned.validation_labels_read)):
                if read and batch is not None:
                    _ = batch.correct  # so that it counts
            ctx.trainings.extend(learned.trainings)
        return method if verb in {"fit", "load"} else answer

    @property
    def process(self) -> Process:
        """The method's process."""
        if self._process is None:
            self._process = self.isolation.process(self.path)
        return self._process

    def _here(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Do it in this process: the method reads weights that lie on an accelerator, and they can't be lent."""
        self._require_unchanged()
        start = time.monotonic()
        try:
            return Here(self.isolation, self.plugin).call(method, verb, arguments)
        finally:
            seconds = time.monotonic() - start
            if seconds > self.isolation.seconds and not self.isolation.busy:
                self.isolation.note(
                    f"{method.name} took {seconds:,.0f} s in {verb}, more than --method-timeout; it could not be"
                    " stopped, for it reads the output head, which lies on the accelerator"
                )

    def _require_unchanged(self) -> None:
        """Check that a fit can't be kept as that of other code than was run."""
        if module_of(self.path) != self.plugin.__module__:
            raise PluginError(f"{self.path.name} was changed since the run began; run it again")
        if source_digest(with_imports(self.path)) != self._source:
            raise PluginError(f"a file that {self.path.name} imports was changed since the run began; run it again")
