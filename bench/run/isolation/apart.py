"""Methods of files: what they are asked is done in a process of their own."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.api import Batch, ConfidenceMethod, Context, RunFacts, Unembedding
from bench.api.errors import PluginError
from bench.registry import module_of
from bench.run.isolation.guard import Arguments, Isolation
from bench.run.isolation.here import Here
from bench.run.isolation.messages import Learned, Questions, Setting
from bench.run.isolation.process import Process
from bench.store.sources import source_digest, with_imports

_NUMBER = "_number_in_its_process"


@dataclass
class Apart:
    """Calls the methods of a file in a process of its own."""

    isolation: Isolation
    plugin: type[ConfidenceMethod]
    path: Path
    gone: list[int] = field(default_factory=list)
    """Numbers of those that nobody has any more."""
    _process: Process | None = None
    _next: Iterator[int] = field(default_factory=itertools.count)
    _ended: str = ""
    """Why the process that had learned is gone."""
    _source: str = ""
    """Digest of the file, and of those that it imports, when the run began."""

    def __post_init__(self) -> None:
        """Remember the file as it is."""
        self._source = source_digest(with_imports(self.path))

    def call(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
        """See `Caller.call`.

        Raises:
            PluginError: whatever the method raised, but for the errors of `bench.api`; or its process is gone.
        """
        if self._stays(method):
            return self._here(method, verb, arguments)
        if verb in {"save", "predict", "fitted"} and _number_of(method) is not None and not self.process.alive:
            raise PluginError(self._ended)
        try:
            self._forget()
            return getattr(self, f"_{verb}")(method, *arguments)
        except PluginError as error:
            self._ended = str(error)
            raise

    @property
    def process(self) -> Process:
        """The method's process."""
        if self._process is None:
            self._process = self.isolation.process(self.path)
        return self._process

    def _stays(self, method: ConfidenceMethod) -> bool:
        """Whether the method stays here: it reads weights that lie on an accelerator, and they can't be lent."""
        backbone = self.isolation.head.backbone
        if backbone is None or backbone.device == "cpu":
            return False
        needs = method.reads()
        return any(isinstance(signal, Unembedding) for signal in needs.fit | needs.predict)

    def _here(self, method: ConfidenceMethod, verb: str, arguments: tuple[Any, ...]) -> Any:
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

    def _ask(self, verb: str, *arguments: Any, serve: Any = None) -> Any:
        self._require_unchanged()
        return self.process.ask(self.plugin.name, verb, *arguments, serve=serve)

    def _require_unchanged(self) -> None:
        """Check that a fit can't be kept as that of other code than was run."""
        if module_of(self.path) != self.plugin.__module__:
            raise PluginError(f"{self.path.name} was changed since the run began; run it again")
        if source_digest(with_imports(self.path)) != self._source:
            raise PluginError(f"a file that {self.path.name} imports was changed since the run began; run it again")

    def _made(self, method: ConfidenceMethod) -> tuple[str, Arguments]:
        return self.plugin.name, method.params()

    def _new_number(self, method: ConfidenceMethod) -> int:
        number = next(self._next)
        object.__setattr__(method, _NUMBER, number)
        weakref.finalize(method, self.gone.append, number).atexit = False
        return number

    def _forget(self) -> None:
        numbers, self.gone[:] = list(self.gone), []
        if numbers and self.process.alive:
            self._ask("drop", numbers)

    def _fit(self, method: ConfidenceMethod, train: Batch, ctx: Context) -> ConfidenceMethod:
        held = None if ctx.validation is None else self._sent(ctx.validation)
        setting = Setting(ctx.seed, ctx.format, ctx.device, ctx.protocol, ctx.train_adapter is not None, held)
        number, made = self._new_number(method), self._made(method)
        learned: Learned = self._ask("fit", number, *made, self._sent(train), setting, serve=ctx.train_adapter)
        for batch, read in ((train, learned.labels_read), (ctx.validation, learned.validation_labels_read)):
            if read and batch is not None:
                _ = batch.correct  # so that it counts
        for course in learned.courses:
            stopping = ctx.early_stopping(
                course.limit, name=course.name, published=course.published, epochs_per_step=course.epochs_per_step
            )
            stopping.resume(*course.state)
        return method

    def _load(self, method: ConfidenceMethod, folder: Path) -> ConfidenceMethod:
        self._ask("load", self._new_number(method), *self._made(method), folder.absolute())
        return method

    def _predict(self, method: ConfidenceMethod, batch: Batch) -> Any:
        return self._ask("predict", _number_of(method), *self._made(method), self._sent(batch))

    def _oddities(self, method: ConfidenceMethod, batch: Batch) -> Any:
        return self._ask("oddities", _number_of(method), *self._made(method), self._sent(batch))

    def _save(self, method: ConfidenceMethod, folder: Path) -> None:
        self._ask("save", _number_of(method), folder.absolute())

    def _fitted(self, method: ConfidenceMethod) -> dict[str, Any]:
        number = _number_of(method)
        return {} if number is None else dict(self._ask("fitted", number))

    def _skip(self, method: ConfidenceMethod, facts: RunFacts) -> str | None:
        reason: str | None = self._ask("skip", *self._made(method), facts)
        return reason

    def _n_parameters(self, method: ConfidenceMethod, facts: RunFacts) -> int:
        return int(self._ask("n_parameters", *self._made(method), facts))

    def _sent(self, batch: Batch) -> Questions:
        return Questions.of(batch, self.isolation.head_file)


def _number_of(method: ConfidenceMethod) -> int | None:
    """Number of a method that has learned; None of any other."""
    number: int | None = vars(method).get(_NUMBER)
    return number
