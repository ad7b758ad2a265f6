"""Mistakes that the harness distinguishes, and what becomes of those that plugins raise."""

import difflib
import inspect
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

PLUGINS = logging.getLogger("bench.plugins")
"""Gets the traceback of whatever a plugin raises, at level INFO: a cell has room for one line only."""

LONGEST = 2_000
"""Letters of a reason; a plugin may raise a novel."""


class UserError(Exception):
    """Something outside the program is not as it must be; shown as one sentence, exit code 2.

    The message says what was expected, what came, and what to do.
    """

    def _render_traceback_(self) -> list[str]:
        """The sentence alone, for IPython, which asks for it by this name; the exception is one as any other."""
        return [f"{type(self).__name__}: {self}"]


class TooLongError(UserError):
    """A question, with what it is answered by, does not fit into the context of a model."""


class UntrainableError(UserError):
    """Raised by `fit`: these answers can't teach the method anything, e.g. all are wrong; its cell is skipped."""


class ContractError(Exception):
    """A plugin broke a rule of `bench.api`; the message names the plugin and the rule."""


class PluginError(Exception):
    """An exception of a plugin in one line: its type, what it says, and the plugin's own line that raised it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for the end of a sentence: the known name that is nearest to an unknown one; empty where none is near.

    >>> did_you_mean("ptreu", ["ccps", "ptrue"]), did_you_mean("x", ["ccps"])
    (" Did you mean 'ptrue'?", '')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def reason_of(error: BaseException, home: Path | None = None) -> str:
    """An exception as a reason: one line, with its type where it is no mistake that the harness distinguishes.

    Args:
        error: the exception.
        home: file or folder of the plugin, whose innermost line in the traceback is named.
    """
    try:
        text = " ".join(str(error).split())
    except BaseException as worse:  # noqa: BLE001 - a plugin's own exception that can't say what it is
        text = f"(its message can't be shown: {type(worse).__name__})"
    text = text[:LONGEST].encode(errors="replace").decode()  # half a character can't be written into a result
    if isinstance(error, UserError | PluginError):
        return text
    place, step = "", error.__traceback__
    while home is not None and step is not None:  # by hand: lines of a traceback may not be there to be read
        path = Path(step.tb_frame.f_code.co_filename)
        if path == home or home in path.parents:
            place = f" ({path.name}:{step.tb_lineno})"
        step = step.tb_next
    return f"{text if isinstance(error, ContractError) else f'{type(error).__name__}: {text}'}{place}"


def plain(error: BaseException, home: Path | None = None) -> Exception:
    """An error without frames that says the same in one line; its type stays where `bench.api` has it.

    Args:
        error: whatever a plugin raised.
        home: see `reason_of`.
    """
    kinds = (UntrainableError, UserError, ContractError)
    return next((kind for kind in kinds if isinstance(error, kind)), PluginError)(reason_of(error, home))


def home_of(plugin: type) -> Path | None:
    """The file of a plugin, or the folder of its package; None of one that was typed in."""
    try:
        path = Path(inspect.getfile(plugin))
    except (OSError, TypeError):
        return None
    depth = plugin.__module__.count(".")
    return path.parents[depth - 1] if depth else path


def require_text(text: str, where: str) -> None:
    """Check that a text can be written as UTF-8, as results are: not so half a surrogate pair, or a byte of a path.

    Args:
        text: whatever came from outside.
        where: what it is in, for the message.

    Raises:
        UserError: it can't.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: expected text that UTF-8 can hold, got {text[error.start]!a} in {text[:60]!a}; write it"
            " otherwise, or rename the file"
        ) from error


@contextmanager
def fenced(who: str) -> Iterator[None]:
    """Turn whatever a plugin raises into one sentence that names it.

    Args:
        who: the plugin and what is asked of it, e.g. `task 'rivers', provenance`.

    Raises:
        UserError: it raised something.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{who}: {reason_of(error)}; correct it, or leave it out") from error


def attempted(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | BaseException:
    """Result of the work, or the exception that a plugin raised in it: that is a failure of its cells, not of the run.

    The exception comes without its traceback and what led to it, whose frames would keep a failed method's arrays in
    memory; of one that doesn't explain itself both go to the log `PLUGINS` as text.
    """
    try:
        return work(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises
        if not isinstance(error, UserError | ContractError | PluginError):  # these say all that there is to say
            PLUGINS.info("%s", told(error))
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def told(error: BaseException) -> str:
    """The traceback as text."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as worse:  # noqa: BLE001 - an exception of a plugin that can't be shown
        return f"{type(error).__name__}, which can't be shown: {type(worse).__name__}"
