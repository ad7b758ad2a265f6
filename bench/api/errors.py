"""Mistakes that the harness distinguishes, and what becomes of those that plugins raise."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class UserError(Exception):
    """Something outside the program is not as it must be; shown as one sentence, exit code 2.

    The message says what was expected, what came, and what to do.
    """


class UntrainableError(UserError):
    """Raised by `fit`: these answers can't teach the method anything, e.g. all are wrong; its cell is skipped."""


class ContractError(Exception):
    """A plugin broke a rule of `bench.api`; the message names the plugin and the rule."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for the end of a sentence: the known name that is nearest to an unknown one; empty where none is near.

    >>> did_you_mean("ptreu", ["ccps", "ptrue"]), did_you_mean("x", ["ccps"])
    (" Did you mean 'ptrue'?", '')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


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


def reason_of(error: BaseException) -> str:
    """An exception as a reason: one line, with its type where it is no mistake that the harness distinguishes."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError | ContractError) else f"{type(error).__name__}: {text}"


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
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{who}: {reason_of(error)}; correct it, or leave it out") from error


def attempted(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | BaseException:
    """Result of the work, or the exception that a plugin raised in it: that is a failure of its cells, not of the run.

    The exception comes without its traceback, whose frames would keep a failed method's arrays in memory.
    """
    try:
        return work(*args, **kwargs)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
        return error.with_traceback(None)
