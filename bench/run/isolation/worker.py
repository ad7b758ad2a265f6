"""The process of a plugin file: imports it, holds its methods, and does what the run asks, one thing at a time.

Whatever the plugin does to this process (exits, hangs, fills the memory, patches libraries, writes into weights) is
done to this process alone. It ends with the run, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import AdapterRef, ConfidenceMethod, Context, ContractError, RunFacts, registration
from bench.api.methods import given
from bench.run.isolation.life import begin
from bench.run.isolation.messages import Course, Failure, Learned, Questions, Setting
from bench.run.isolation.pipe import Pipe
from bench.run.isolation.state import kept

Arguments = Mapping[str, object]


@dataclass
class Host:
    """Does what the run asks of a file's methods; the public functions are the verbs."""

    pipe: Pipe
    path: Path
    """The file."""
    methods: dict[int, ConfidenceMethod] = field(default_factory=dict)
    """Methods that have learned, by the number that the run gave them."""

    def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Result of a verb, or what the plugin raised; state of this process that it changed is put back and told."""
        try:
            with kept(lambda what, end: self.pipe.send(("changed", (what, end)))):
                return getattr(self, verb)(*arguments)
        except BaseException as error:  # noqa: BLE001 - whatever a plugin raises
            return Failure.of(error, self.path)

    def run_file(self) -> list[str]:
        """Execute the file; returns the names of its methods."""
        module = registry.run_file(self.path)
        return [d.name for d in registration.DECLARED if d.module == module and d.kind == "method"]

    def declare(self, name: str, arguments: Arguments) -> None:
        """Ask a method all that it says of itself, so that the run may ask it, too."""
        method = self._made(name, arguments)
        method.reads()
        method.trains()
        type(method)(**method.params())

    def fit(self, number: int, name: str, arguments: Arguments, train: Questions, setting: Setting) -> Learned:
        """See `ConfidenceMethod.fit`."""
        batch = train.batch()
        held = None if setting.validation is None else setting.validation.batch()
        trainer = _Trainer(self.pipe) if setting.trains_adapters else None
        ctx = Context(setting.seed, setting.format, setting.device, setting.protocol, trainer, validation=held)
        method = self.methods[number] = self._made(name, arguments)
        method.fit(batch, ctx)
        return Learned(batch.labels_read, held is not None and held.labels_read, list(map(Course.of, ctx.trainings)))

    def load(self, number: int, name: str, arguments: Arguments, folder: Path) -> None:
        """See `ConfidenceMethod.load`."""
        method = self.methods[number] = self._made(name, arguments)
        method.load(folder)

    def predict(self, number: int, name: str, arguments: Arguments, questions: Questions) -> np.ndarray:
        """See `ConfidenceMethod.predict`."""
        return given(self._method(number, name, arguments), questions.batch(), allow_nan=True)

    def oddities(self, number: int, name: str, arguments: Arguments, questions: Questions) -> dict[str, int]:
        """See `ConfidenceMethod.oddities`."""
        found = self._method(number, name, arguments).oddities(questions.batch())
        return {str(what): int(n) for what, n in found.items()}

    def save(self, number: int, folder: Path) -> None:
        """See `ConfidenceMethod.save`."""
        self.methods[number].save(folder)

    def fitted(self, number: int) -> dict[str, AdapterRef]:
        """The adapters that a method has trained: of what it learned the run wants no more."""
        found = self.methods[number].fitted()
        return {str(name): value for name, value in found.items() if type(value) is AdapterRef}

    def skip(self, name: str, arguments: Arguments, facts: RunFacts) -> str | None:
        """See `ConfidenceMethod.skip`."""
        reason = self._made(name, arguments).skip(facts)
        return None if reason is None else "".join(str(reason))

    def n_parameters(self, name: str, arguments: Arguments, facts: RunFacts) -> int:
        """See `ConfidenceMethod.n_parameters`."""
        return int(self._made(name, arguments).n_parameters(facts))

    def drop(self, numbers: list[int]) -> None:
        """Forget methods that the run no longer has."""
        for number in numbers:
            self.methods.pop(number, None)

    def _method(self, number: int, name: str, arguments: Arguments) -> ConfidenceMethod:
        return self.methods.get(number) or self._made(name, arguments)

    def _made(self, name: str, arguments: Arguments) -> ConfidenceMethod:
        module = registry.run_file(self.path)
        for each in registration.DECLARED:
            if (each.kind, each.name, each.module) == ("method", name, module):
                method: ConfidenceMethod = each.plugin(**arguments)
                return method
        raise ContractError(f"{self.path} has no method {name!r} any more")


@dataclass
class _Trainer:
    """`ctx.train_adapter`: the run has the model, so the run trains."""

    pipe: Pipe

    def __call__(self, **arguments: Any) -> AdapterRef:
        """See `bench.api.TrainAdapter`."""
        self.pipe.send(("train_adapter", arguments))
        answer = self.pipe.receive()
        if isinstance(answer, Failure):
            raise answer.error()
        return answer  # type: ignore[no-any-return]


def main() -> None:
    """Serve the run that started this process, until it is gone."""
    pipe, (path,) = begin()
    host = Host(pipe, Path(path))
    try:
        while True:
            verb, *arguments = host.pipe.receive()
            answer = host.answer(verb, tuple(arguments))
            with contextlib.suppress(BaseException):  # a plugin may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
            host.pipe.send(("answer", answer))
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # without waiting for a plugin's threads
