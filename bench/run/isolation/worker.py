"""Program of a plugin file's child process: it imports the file, holds its methods, and answers the calls of the run.

A plugin that exits, hangs, fills the memory, patches libraries or writes into weights harms only this process. The
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
from bench.api.errors import format_traceback, without_traceback
from bench.api.methods import outputs_of
from bench.run.isolation.process import begin, send


@dataclass
class Host:
    """Holds the methods of a plugin file in the child process, and answers the calls of the run one by one."""

    connection: Connection
    path: Path
    """Plugin file."""
    methods: dict[int | None, ConfidenceMethod] = field(default_factory=dict)
    """Number that the run assigned to a fitted method -> the method."""

    def answer(
        self,
        verb: str,
        name: str = "",
        params: Mapping[str, object] | None = None,
        number: int | None = None,
        live: Collection[int] = (),
        *arguments: Any,
    ) -> Any:
        """Answer one call of the run, and return the result as plain data.

        Args:
            verb: what to call: `run_file` (execute the plugin file), `declare` (all declarations of a confidence
                method), or a Python method of `ConfidenceMethod` such as `fit`.
            name: name of the confidence method.
            params: arguments of the confidence method's constructor.
            number: number of the fitted method, also of one that this call fits or loads; None: an unfitted method.
            live: numbers of the fitted methods that the run still refers to; all others are deleted.
            *arguments: arguments of the verb.
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
                vars(training).update(kept=None, _validation=None)  # these stay here, with the method
            return train.labels_read, ctx.validation is not None and ctx.validation.labels_read, trainings
        if verb == "predict":
            return outputs_of(method, *arguments, allow_nan=True)
        value = getattr(method, verb)(*arguments)
        if verb == "fitted":  # the run needs the trained adapters alone
            return {str(key): ref for key, ref in value.items() if type(ref) is AdapterRef}
        return value if verb in {"skip", "n_parameters", "oddities"} else None

    def _train_adapter(self, **arguments: Any) -> AdapterRef:
        """Ask the run to train an adapter, since it holds the model; see `bench.api.TrainAdapter` for the arguments."""
        send(self.connection, ("train_adapter", arguments))
        answer = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


def main() -> None:
    """Answer the calls of the run that started this process, until the run ends."""
    connection, (path,) = begin()
    host = Host(connection, Path(path))
    try:
        while True:
            message = connection.recv()
            try:
                reply = pickle.dumps(("answer", host.answer(*message)))
            except BaseException as error:  # noqa: BLE001 - any exception of a plugin, or a result that has no pickle
                reply = pickle.dumps(("raised", (without_traceback(error, host.path), format_traceback(error))))
            with contextlib.suppress(BaseException):  # a plugin may have closed these streams
                sys.stdout.flush()
                sys.stderr.flush()
            connection.send_bytes(reply)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # without waiting for a plugin's threads
