"""Methods as a run has them: called in a spawned process if they are of a file, else in this one, the head watched."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.api import Batch, ConfidenceMethod, Context, ContractError, Unembedding
from bench.api.errors import PLUGINS, PluginError, home_of, plain, told
from bench.results import provenance
from bench.run.isolation.sandbox import Isolation
from bench.store.sources import source_digest, with_imports

VERBS = ("fit", "predict", "save", "load", "fitted", "skip", "n_parameters")
"""Verbs that a run asks of an instance once it is checked."""
RARE = "oddities"
"""Verb that most methods don't have; they are not handed a batch for nothing."""
_NUMBER = "_number_in_its_process"
_NUMBERS = itertools.count()
"""For methods that learn."""


def sandboxed(plugin: type[ConfidenceMethod], isolation: Isolation, path: Path | None) -> type[ConfidenceMethod]:
    """A subclass of a method, with its arguments, its declarations and its names, whose verbs are called safely.

    Args:
        plugin: the method.
        isolation: of the run.
        path: file in which it was given; None for an installed one, which stays in this process.
    """
    call = partial(call_here, isolation, plugin)
    if path is not None:
        call = partial(call_elsewhere, isolation, plugin, path, source_digest(with_imports(path)))

    def called(verb: str) -> Callable[..., Any]:
        return lambda self, *arguments: call(self, verb, *arguments)

    names = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__wrapped__"] = plugin  # whose source is asked for
    has_rare = getattr(plugin, RARE) is not getattr(ConfidenceMethod, RARE)
    verbs = {verb: called(verb) for verb in (*VERBS, *([RARE] if has_rare else []))}
    members = {**names, **verbs, "trains": classmethod(lambda _cls: plugin.trains())}
    made: type[ConfidenceMethod] = types.new_class(plugin.__name__, (plugin,), exec_body=lambda of: of.update(members))
    return made


def call_here(
    isolation: Isolation, plugin: type[ConfidenceMethod], method: ConfidenceMethod, verb: str, *arguments: Any
) -> Any:
    """Have a method do what its class says.

    Raises:
        PluginError: whatever the method raised, but for the errors of `bench.api`.
        ContractError: it wrote into the output head.
    """
    work = getattr(plugin, verb)
    if isolation.busy:
        return work(method, *arguments)
    ours = plugin.__module__.partition(".")[0] == provenance.METHODS
    if not ours:  # those of this package write into nothing, as their tests say
        arguments = tuple(map(_own, arguments))
    watched = not ours and _reads_head(method)
    if watched:
        isolation.note_head()
    outcome = failure = None
    isolation.busy = True
    try:
        outcome = work(method, *arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises
        PLUGINS.info("%s", told(error))
        failure = plain(error, home_of(plugin))
    finally:
        isolation.busy = False
    if watched and not isolation.head_unchanged():
        raise ContractError(
            f"{method.name} wrote into the weights of the model's output head in {verb}; copy them first"
        )
    if failure is not None:
        raise failure
    return outcome


def _own(argument: Any) -> Any:
    """A copy of a batch, or of the one in a context, that a plugin may write into; anything else as it is."""
    if isinstance(argument, Batch):
        return argument.own()
    if isinstance(argument, Context) and argument.validation is not None:
        return replace(argument, validation=argument.validation.own())
    return argument


def _reads_head(method: ConfidenceMethod) -> bool:
    needs = method.reads()
    return any(isinstance(signal, Unembedding) for signal in needs.fit | needs.predict)


def call_elsewhere(
    isolation: Isolation,
    plugin: type[ConfidenceMethod],
    path: Path,
    source: str,
    method: ConfidenceMethod,
    verb: str,
    *arguments: Any,
) -> Any:
    """Have a method of a file do what its class says, in a process of its own.

    `source`: digest of the file, and of those that it imports, when the run began.

    Raises:
        PluginError: whatever the method raised, but for the errors of `bench.api`; or its process is gone.
    """
    name, number = plugin.name, vars(method).get(_NUMBER)
    process = isolation.process(path, name)
    if number is not None and verb in {"save", "predict", "fitted"} and number not in process.learned:
        raise PluginError(process.ended)
    if source_digest(with_imports(path)) != source:  # a fit would be kept as that of the edited code
        raise PluginError(f"{path.name} or a file that it imports has changed since the run began; run it again")
    if isolation.lm is not None and isolation.lm.device != "cpu" and _reads_head(method):
        note = f"{name} reads the output head, which lies on the accelerator: --method-timeout doesn't hold for it"
        isolation.notes[note] = None
        return call_here(isolation, plugin, method, verb, *arguments)
    if number is None and verb == "fitted":
        return {}
    if verb in {"fit", "load"}:
        number = next(_NUMBERS)
        object.__setattr__(method, _NUMBER, number)
        process.learned[number] = method
    asked = (name, verb, name, method.params(), number, list(process.learned))
    if verb != "fit":
        answer = process.ask(*asked, *(each.absolute() if isinstance(each, Path) else each for each in arguments))
        return method if verb == "load" else answer
    train, ctx = arguments
    serve = ctx.train_adapter
    *labels_read, trainings = process.ask(
        *asked, train, replace(ctx, train_adapter=None), serve is not None, serve=serve
    )
    for batch, read in zip((train, ctx.validation), labels_read, strict=True):
        if read:
            _ = batch.correct  # so that it counts
    ctx.trainings.extend(trainings)
    return method
