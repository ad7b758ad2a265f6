"""Exception classes of the harness, and conversion of plugins' exceptions to them."""

import difflib
import inspect
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

PLUGINS = logging.getLogger("bench.plugins")
"""Logger of the tracebacks of plugins' exceptions, at level INFO; a result itself stores only one line of each."""

_RECORDS = (
    "records of TokenScores have log_probability and entropy (with divergence=True also divergence, with top=N top_ids"
    " and top_log_probabilities), those of Samples id, log_probability and ended"
)
_RECORD_FIELDS = (
    "log_probability", "entropy", "divergence", "top_ids", "top_log_probabilities", "id", "ended"
)  # fmt: skip
"""Fields of these records. A plugin's records of its own have others, of which `_RECORDS` says nothing."""
LONGEST = 2_000
"""Maximum length of an exception's message, in characters; longer messages are cut."""


class UserError(Exception):
    """Error in the user's input or environment; shown as one sentence, exit code 2.

    The message says what was expected, what came, and what to do.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the message alone; IPython calls a method of this name and prints its result, not a traceback."""
        return [f"{type(self).__name__}: {self}"]


class TooLongError(UserError):
    """Raised if a question with its answer does not fit into the model's context."""


class AbsentError(UserError):
    """Raised if a split does not exist, or none of its rows can be answered or graded.

    A run does without such a validation split. Any other error, which may go away, stops it.
    """


class DiskError(UserError):
    """Raised if a file of the cache or of the results can't be read or written at the moment, e.g. on a full disk."""


class UntrainableError(UserError):
    """Raised by `fit` when the method can't learn from the training answers, e.g. as all are wrong.

    The harness then skips the method's result on this task and records the message as the reason.
    """


class ContractError(Exception):
    """Raised if a plugin violates a rule of `bench.api`; the message names the plugin and the rule."""


class PluginError(Exception):
    """Replaces an exception of a plugin; its message has that exception's type, its message, and the plugin's line."""


def fold_name(name: str) -> str:
    """Return a name of a method, task or model as it is registered, from a spelling such as those of papers.

    >>> fold_name("P(True)"), fold_name("SAPLMA-F"), fold_name("Self Consistency")
    ('ptrue', 'saplma-f', 'self-consistency')
    """
    return "-".join(re.sub("[()]", "", name).casefold().split())


def match_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that equals a name up to case and the papers' spelling; without one, the name itself.

    >>> match_name("Org/Llama", ["org/llama"]), match_name("P(True)", ["ptrue"]), match_name("X", ["y"])
    ('org/llama', 'ptrue', 'X')
    """
    names = list(known)
    return name if name in names else next((each for each in names if fold_name(each) == fold_name(name)), name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name most similar to an unknown name; an empty text if none is similar.

    >>> did_you_mean("ptreu", ["ccps", "ptrue"]), did_you_mean("CCSP", ["ccps"]), did_you_mean("x", ["ccps"])
    (" Did you mean 'ptrue'?", " Did you mean 'ccps'?", '')
    """
    names = list(known)
    matches = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(fold_name(name), names, n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, followed by the second line if the first ends with a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else type(error).__name__


def reason_of(error: BaseException, home: Path | None = None) -> str:
    """Format an exception in one line: its type, its message, and the plugin's line that raised it.

    `UserError` and `PluginError` give their message alone, `ContractError` its message and the line.

    Args:
        error: the exception.
        home: file or folder of the plugin; the message names the innermost line of the traceback that is in it.
    """
    try:
        text = " ".join(str(error).split())
    except BaseException as nested:  # noqa: BLE001 - a plugin's exception whose __str__ raises
        text = f"(its message can't be shown: {type(nested).__name__})"
    field = text.removeprefix("no field of name ")  # numpy does not say which fields there are
    if field != text and isinstance(error, ValueError) and did_you_mean(field, _RECORD_FIELDS):
        text += f"; {_RECORDS}"
    text = text[:LONGEST].encode(errors="replace").decode()  # a lone surrogate can't be written into a result
    if isinstance(error, UserError | PluginError):
        return text
    place, frame_entry = "", error.__traceback__
    while home is not None and frame_entry is not None:  # not by `traceback`: source lines may be missing
        path = Path(frame_entry.tb_frame.f_code.co_filename)
        if path == home or home in path.parents:
            place = f" ({path.name}:{frame_entry.tb_lineno})"
        frame_entry = frame_entry.tb_next
    return f"{text if isinstance(error, ContractError) else f'{type(error).__name__}: {text}'}{place}"


def without_traceback(error: BaseException, home: Path | None = None) -> Exception:
    """Return an exception with the message of `reason_of` and no traceback.

    `UserError`, `ContractError`, `UntrainableError` and `DiskError` keep their type. Any other subclass of `UserError`
    becomes `UserError`, every other type `PluginError`.

    Args:
        error: the exception of a plugin.
        home: as for `reason_of`.
    """
    kinds = (UntrainableError, DiskError, UserError, ContractError)
    return next((kind for kind in kinds if isinstance(error, kind)), PluginError)(reason_of(error, home))


def home_of(plugin: type) -> Path | None:
    """Return the file of a plugin, or its package's folder; None for a class that was typed in interactively."""
    try:
        path = Path(inspect.getfile(plugin))
    except (OSError, TypeError):
        return None
    depth = plugin.__module__.count(".")
    return path.parents[depth - 1] if depth else path


def require_text(text: str, where: str) -> None:
    """Check that a text can be written as UTF-8; lone surrogates and undecodable bytes of file names can't.

    Args:
        text: text from the user, from a file or from a server.
        where: where the text comes from, for the message.

    Raises:
        UserError: the text can't be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: expected text that UTF-8 can hold, got {text[error.start]!a} in {text[:60]!a}; write it"
            " otherwise, or rename the file"
        ) from error


@contextmanager
def plugin_errors(who: str) -> Iterator[None]:
    """Context manager that converts an exception of a plugin to a `UserError` that names the plugin.

    A `UserError` of the plugin and a `KeyboardInterrupt` pass unchanged.

    Args:
        who: the plugin and the called function, e.g. `task 'rivers', provenance`.

    Raises:
        UserError: the plugin raised an exception.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{who}: {reason_of(error)}; correct it, or leave it out") from error


def capture(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | BaseException:
    """Call `work` and return its result, or the exception that it raised: a plugin's exception can't end the run.

    Only `KeyboardInterrupt` is raised.

    The exception is returned without traceback and cause, as they would keep a failed method's arrays in memory. Its
    traceback is logged to `PLUGINS`, unless its class is one of the harness's own.
    """
    try:
        return work(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - any exception of a plugin
        if not isinstance(error, UserError | ContractError | PluginError):  # their messages need no traceback
            PLUGINS.info("%s", format_traceback(error))
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def format_traceback(error: BaseException) -> str:
    """Return an exception with its traceback as text."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as nested:  # noqa: BLE001 - a plugin's exception that can't be formatted
        return f"{type(error).__name__}, which can't be shown: {type(nested).__name__}"
