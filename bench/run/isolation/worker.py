"""The process of a plugin file: imports it, holds its methods, and does what the run asks, one thing at a time.

Whatever the plugin does to this process (exits, hangs, fills the memory, patches libraries, writes into weights) is
done to this process alone. It ends with the run, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import registry
from bench.api import AdapterRef, Batch, ConfidenceMethod, Context, ContractError, registration
from bench.api.methods import given
from bench.run.isolation.messages import Failure, Learned, without_weights
from bench.run.isolation.pipe import Pipe, begin
from bench.run.isolation.state import kept


@dataclass
class Host:
    """Does what the run asks of a file's methods."""

    pipe: Pipe
    path: Path
    """The file."""
    methods: dict[int | None, ConfidenceMethod] = field(default_factory=dict)
    """Methods that have learned, by the number that the run gave them."""

    def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Result of a verb, or what the plugin raised; state of this process that it changed is put back and told."""
        try:
            with kept(lambda what, end: self.pipe.send(("changed", (what, end)))):
                if verb == "run_file":
                    return registry.run_file(self.path)
                return self.declare(*arguments) if verb == "declare" else self.call(verb, *arguments)
        except BaseException as error:  # noqa: BLE001 - whatever a plugin raises
            return Failure.of(error, self.path)

    def declare(self, name: str, arguments: Mapping[str, object]) -> None:
        """Ask a method all that it says of itself, so that the run may ask it, too."""
        method = self._made(name, arguments)
        method.reads()
        method.trains()
        type(method)(**method.params())

    def call(
        self, verb: str, number: int | None, name: str, params: Mapping[str, object], had: list[int], *arguments: Any
    ) -> Any:
        """Result of a verb of `ConfidenceMethod`, as plain data.

        Args:
            verb: its name.
            number: of the method, if it learns or has learned.
            name: by which a new method is made.
            params: arguments of a new method.
            had: numbers of methods that the run still has; others are forgotten.
            *arguments: of the verb.
        """
        self.methods = {each: method for each, method in self.methods.items() if each in had}
        if number not in self.methods and verb in {"save", "fitted"}:
            raise ContractError(f"{name} has nothing to {verb}: the process in which it learned is gone")
        method = self.methods.get(number) or self._made(name, params)
        for batch in arguments:
            if isinstance(batch, Batch):
                batch._make_own()  # noqa: SLF001 - a pickle keeps arrays read-only, but a plugin may write into its own
        match verb:
            case "fit":
                self.methods[number] = method
                return self._fit(method, *arguments)
            case "predict":
                return given(method, *arguments, allow_nan=True)
            case "oddities":
                return {str(what): int(n) for what, n in method.oddities(*arguments).items()}
            case "skip":
                reason = method.skip(*arguments)
                return None if reason is None else "".join(str(reason))
            case "n_parameters":
                return int(method.n_parameters(*arguments))
            case "fitted":  # of what it learned the run wants the adapters that it trained
                return {str(key): value for key, value in method.fitted().items() if type(value) is AdapterRef}
            case "load":
                self.methods[number] = method
                method.load(*arguments)
            case "save":
                method.save(*arguments)
        return None

    def _fit(self, method: ConfidenceMethod, train: Batch, held: Batch | None, ctx: Context, trains: bool) -> Learned:  # noqa: FBT001
        ctx = replace(ctx, validation=held, train_adapter=self._train_adapter if trains else None)
        method.fit(train, ctx)
        trainings = [without_weights(training) for training in ctx.trainings]
        return Learned(train.labels_read, held is not None and held.labels_read, trainings)

    def _train_adapter(self, **arguments: Any) -> AdapterRef:
        """See `bench.api.TrainAdapter`: the run has the model, so the run trains."""
        self.pipe.send(("train_adapter", arguments))
        answer = self.pipe.receive()
        if isinstance(answer, Failure):
            raise answer.error()
        return answer  # type: ignore[no-any-return]

    def _made(self, name: str, arguments: Mapping[str, object]) -> ConfidenceMethod:
        module = registry.run_file(self.path)
        for each in registration.DECLARED:
            if (each.kind, each.name, each.module) == ("method", name, module):
                method: ConfidenceMethod = each.plugin(**arguments)
                return method
        raise ContractError(f"{self.path} has no method {name!r} any more")


def main() -> None:
    """Serve the run that started this process, until it is gone."""
    pipe, (path,) = begin()
    host = Host(pipe, Path(path))
    try:
        while True:
            verb, *arguments = pipe.receive()
            answer = host.answer(verb, tuple(arguments))
            with contextlib.suppress(BaseException):  # a plugin may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
            try:
                pipe.send(("answer", answer))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - a plugin put something there that can't be pickled
                pipe.send(("answer", Failure.of(error, host.path)))
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # without waiting for a plugin's threads
