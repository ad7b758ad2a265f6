"""The process of a plugin file: imports it, holds its methods, and does what the run asks, one thing at a time.

Whatever the plugin does to this process (exits, hangs, fills the memory, patches libraries, writes into weights) is
done to this process alone. It ends with the run, however that ends.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import registry
from bench.api import AdapterRef, Batch, ConfidenceMethod, Context, ContractError, registration
from bench.api.errors import plain, told
from bench.api.methods import given
from bench.run.isolation.process import begin, send


@dataclass
class Host:
    """Does what the run asks of a file's methods."""

    connection: Connection
    path: Path
    """The file."""
    methods: dict[int | None, ConfidenceMethod] = field(default_factory=dict)
    """Methods that have learned, by number."""

    def answer(
        self,
        verb: str,
        name: str = "",
        params: Mapping[str, object] | None = None,
        number: int | None = None,
        had: Collection[int] = (),
        *arguments: Any,
    ) -> Any:
        """Result of a verb as plain data.

        Args:
            verb: `run_file`, `declare` (a method says all that it says of itself), or one of `ConfidenceMethod`.
            name: of the method.
            params: its arguments.
            number: of the method, if it learns or has learned.
            had: numbers of methods that the run still has; others are forgotten.
            *arguments: of the verb.
        """
        module = registry.run_file(self.path)
        if verb == "run_file":
            return None
        self.methods = {each: method for each, method in self.methods.items() if each in had}
        method = self.methods.get(number)
        if method is None:
            declared = ((each.kind, each.name, each.module, each.plugin) for each in registration.DECLARED)
            plugin = next((plugin for *own, plugin in declared if own == ["method", name, module]), None)
            if plugin is None:
                raise ContractError(f"{self.path} has no method {name!r} any more")
            method = plugin(**params or {})
        for each in arguments:
            for batch in (each, each.validation if isinstance(each, Context) else None):
                if isinstance(batch, Batch):
                    batch._make_own()  # noqa: SLF001 - its arrays are read-only, but a plugin may write into its own
        if verb in {"fit", "load"}:
            self.methods[number] = method
        if verb == "declare":
            method.reads()
            method.trains()
            type(method)(**method.params())
            return None
        if verb == "fit":
            train, ctx, trains = arguments
            ctx = replace(ctx, train_adapter=self._train_adapter if trains else None)
            method.fit(train, ctx)
            trainings = [copy.copy(training) for training in ctx.trainings]
            for training in trainings:
                vars(training).update(kept=None, _validation=None)  # which the method here has
            return train.labels_read, ctx.validation is not None and ctx.validation.labels_read, trainings
        if verb == "predict":
            return given(method, *arguments, allow_nan=True)
        value = getattr(method, verb)(*arguments)
        if verb == "fitted":  # of what it learned the run wants the adapters that it trained
            return {str(key): each for key, each in value.items() if type(each) is AdapterRef}
        return value if verb in {"skip", "n_parameters", "oddities"} else None

    def _train_adapter(self, **arguments: Any) -> AdapterRef:
        """See `bench.api.TrainAdapter`: the run has the model, so the run trains."""
        send(self.connection, ("train_adapter", arguments))
        answer = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


def main() -> None:
    """Serve the run that started this process, until it is gone."""
    connection, (path,) = begin()
    host = Host(connection, Path(path))
    try:
        while True:
            message = connection.recv()
            try:
                reply = pickle.dumps(("answer", host.answer(*message)))
            except BaseException as error:  # noqa: BLE001 - whatever a plugin raises, or gives that there is no pickle of
                reply = pickle.dumps(("raised", (plain(error, host.path), told(error))))
            with contextlib.suppress(BaseException):  # a plugin may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
            connection.send_bytes(reply)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # without waiting for a plugin's threads
