"""Child process of a plugin file: imports it, holds its methods, and serves the calls of the run one by one.

A plugin that exits, hangs, fills the memory, patches libraries or writes into weights harms this process alone. The
process ends with the run.
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
from bench.api.errors import format_traceback, plain
from bench.api.methods import outputs_of
from bench.run.isolation.process import begin, send


@dataclass
class Host:
    """Serves the run's calls of a plugin file's methods."""

    connection: Connection
    path: Path
    """Plugin file."""
    methods: dict[int | None, ConfidenceMethod] = field(default_factory=dict)
    """Fitted methods by number."""

    def answer(
        self,
        verb: str,
        name: str = "",
        params: Mapping[str, object] | None = None,
        number: int | None = None,
        live: Collection[int] = (),
        *arguments: Any,
    ) -> Any:
        """Call a verb and return its result as plain data.

        Args:
            verb: `run_file`, `declare` (call all declarations of a method), or a method of `ConfidenceMethod`.
            name: of the method.
            params: arguments of its constructor.
            number: of the method, if it is being fitted or is fitted.
            live: numbers of methods that the run still holds; others are deleted.
            *arguments: of the verb.
        """
        module = registry.run_file(self.path)
        if verb == "run_file":
            return None
        self.methods = {k: method for k, method in self.methods.items() if k in live}
        method = self.methods.get(number)
        if method is None:
            declared = ((d.kind, d.name, d.module, d.plugin) for d in registration.DECLARED)
            plugin = next((plugin for *key, plugin in declared if key == ["method", name, module]), None)
            if plugin is None:
                raise ContractError(f"{self.path} has no method {name!r} any more")
            method = plugin(**params or {})
        for argument in arguments:
            for batch in (argument, argument.validation if isinstance(argument, Context) else None):
                if isinstance(batch, Batch):
                    batch._copy_arrays()  # noqa: SLF001 - its arrays are read-only, but a plugin may write into a copy
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
                vars(training).update(kept=None, _validation=None)  # which stay with the method here
            return train.labels_read, ctx.validation is not None and ctx.validation.labels_read, trainings
        if verb == "predict":
            return outputs_of(method, *arguments, allow_nan=True)
        value = getattr(method, verb)(*arguments)
        if verb == "fitted":  # the run needs the trained adapters alone
            return {str(key): ref for key, ref in value.items() if type(ref) is AdapterRef}
        return value if verb in {"skip", "n_parameters", "oddities"} else None

    def _train_adapter(self, **arguments: Any) -> AdapterRef:
        """See `bench.api.TrainAdapter`: the run holds the model, and trains the adapter."""
        send(self.connection, ("train_adapter", arguments))
        answer = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


def main() -> None:
    """Serve the run that started this process, until it ends."""
    connection, (path,) = begin()
    host = Host(connection, Path(path))
    try:
        while True:
            message = connection.recv()
            try:
                reply = pickle.dumps(("answer", host.answer(*message)))
            except BaseException as error:  # noqa: BLE001 - any exception of a plugin, or a result that has no pickle
                reply = pickle.dumps(("raised", (plain(error, host.path), format_traceback(error))))
            with contextlib.suppress(BaseException):  # a plugin may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
            connection.send_bytes(reply)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # without waiting for a plugin's threads
