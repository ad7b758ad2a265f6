"""Wrap confidence methods for a run: methods of plugin files are called in child processes, others in this process."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.api import Batch, ConfidenceMethod, Context, ContractError, Unembedding
from bench.api.errors import PLUGINS, PluginError, format_traceback, home_of, without_traceback
from bench.results import provenance
from bench.run.isolation.sandbox import Isolation
from bench.store.sources import imported_files, source_digest

VERBS = ("fit", "predict", "save", "load", "fitted", "skip", "n_parameters")
"""Names of the Python methods of `ConfidenceMethod` ("verbs") that a run calls on an instance."""
RARE = "oddities"
"""Name of an optional verb: it is called only on classes that override it, so that no batch is sent to a child process
in vain."""
_NUMBER = "_number_in_its_process"
_NUMBERS = itertools.count()
"""Source of the numbers by which this process and a child process refer to the same fitted method."""


def isolated_class(plugin: type[ConfidenceMethod], isolation: Isolation, path: Path | None) -> type[ConfidenceMethod]:
    """Return a subclass of a method whose verbs (`fit`, `predict`, ...) are run in isolation.

    The subclass has the name, constructor arguments and declarations of the method.

    Args:
        plugin: class of the method.
        isolation: isolation of the run.
        path: plugin file that defines the class; None for any other method (built in, installed, or of a notebook),
            which runs in this process.
    """
    call = partial(call_in_process, isolation, plugin)
    if path is not None:
        call = partial(call_in_child, isolation, plugin, path, source_digest(imported_files(path)))

    def called(verb: str) -> Callable[..., Any]:
        return lambda self, *arguments: call(self, verb, *arguments)

    names = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__wrapped__"] = plugin  # for the digest of its source
    has_rare = getattr(plugin, RARE) is not getattr(ConfidenceMethod, RARE)
    verbs = {verb: called(verb) for verb in (*VERBS, *([RARE] if has_rare else []))}
    members = {**names, **verbs, "trains": classmethod(lambda _cls: plugin.trains())}
    cls: type[ConfidenceMethod] = types.new_class(plugin.__name__, (plugin,), exec_body=lambda of: of.update(members))
    return cls


def call_in_process(
    isolation: Isolation, plugin: type[ConfidenceMethod], method: ConfidenceMethod, verb: str, *arguments: Any
) -> Any:
    """Call a verb of a method, such as `fit`, in this process, and return its result.

    If the method is not built in, it gets copies of the batches, and its output head is checked for changes.

    Raises:
        PluginError: the method raised an exception that is not one of `bench.api`.
        ContractError: the method wrote into the weights of the output head.
    """
    implementation = getattr(plugin, verb)
    if isolation.busy:
        return implementation(method, *arguments)
    built_in = plugin.__module__.partition(".")[0] == provenance.METHODS
    if not built_in:  # built-in methods write into no batch, as their tests check
        arguments = tuple(map(_copy_batches, arguments))
    watched = not built_in and _reads_head(method)
    if watched:
        isolation.note_head()
    outcome = failure = None
    isolation.busy = True
    try:
        outcome = implementation(method, *arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises
        PLUGINS.info("%s", format_traceback(error))
        failure = without_traceback(error, home_of(plugin))
    finally:
        isolation.busy = False
    if watched and not isolation.head_unchanged():
        raise ContractError(
            f"{method.name} wrote into the weights of the model's output head in {verb}; copy them first"
        )
    if failure is not None:
        raise failure
    return outcome


def _copy_batches(argument: Any) -> Any:
    """Copy a batch, or a context and its batch, so that a plugin may change the copy; return other values unchanged."""
    if isinstance(argument, Batch):
        return argument.own()
    if isinstance(argument, Context) and argument.validation is not None:
        return replace(argument, validation=argument.validation.own())
    return argument


def _reads_head(method: ConfidenceMethod) -> bool:
    needs = method.reads()
    return any(isinstance(signal, Unembedding) for signal in needs.fit | needs.predict)


def call_in_child(
    isolation: Isolation,
    plugin: type[ConfidenceMethod],
    path: Path,
    source: str,
    method: ConfidenceMethod,
    verb: str,
    *arguments: Any,
) -> Any:
    """Call a verb of a method, such as `fit`, in the child process of its plugin file, and return its result.

    If the method reads the output head and the model is on an accelerator, the call runs in this process instead.

    Args:
        isolation: isolation of the run.
        plugin: class of the method.
        path: plugin file that defines the class.
        source: digest of the plugin file and of the files that it imports, computed when the run began.
        method: instance of the method in this process.
        verb: name of the Python method to call.
        *arguments: arguments of the verb.

    Raises:
        PluginError: the method raised an exception that is not one of `bench.api`, its process ended, or its file was
            changed during the run.
    """
    name, number = plugin.name, vars(method).get(_NUMBER)
    process = isolation.process(path, name)
    if number is not None and verb in {"save", "predict", "fitted"} and number not in process.learned:
        raise PluginError(process.ended)
    if source_digest(imported_files(path)) != source:  # a fit would be stored as that of the edited code
        raise PluginError(f"{path.name} or a file that it imports has changed since the run began; run it again")
    if isolation.lm is not None and isolation.lm.device != "cpu" and _reads_head(method):
        note = f"{name} reads the output head, which lies on the accelerator: --method-timeout doesn't hold for it"
        isolation.notes[note] = None
        return call_in_process(isolation, plugin, method, verb, *arguments)
    if number is None and verb == "fitted":
        return {}
    if verb in {"fit", "load"}:
        number = next(_NUMBERS)
        object.__setattr__(method, _NUMBER, number)
        process.learned[number] = method
    call = (name, verb, name, method.params(), number, list(process.learned))
    if verb != "fit":
        answer = process.ask(*call, *(a.absolute() if isinstance(a, Path) else a for a in arguments))
        return method if verb == "load" else answer
    train, ctx = arguments
    serve = ctx.train_adapter
    *labels_read, trainings = process.ask(
        *call, train, replace(ctx, train_adapter=None), serve is not None, serve=serve
    )
    for batch, read in zip((train, ctx.validation), labels_read, strict=True):
        if read:
            _ = batch.correct  # marks the labels as read
    ctx.trainings.extend(trainings)
    return method
