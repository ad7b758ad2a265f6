"""The end of every command: its exit code, and at most one sentence on stderr for whatever stopped it."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable

from rich.text import Text

from bench import registry
from bench.api import ContractError, UserError
from bench.api.errors import require_text
from bench.cli.overwritten import refuse_overwritten
from bench.cli.printing import console
from bench.cli.stopping import INTERRUPTED, Stop, stoppable
from bench.cli.streams import lenient


def exit_code(command: Callable[[], object]) -> int:
    """Run a command line; returns its exit code."""
    with lenient() as out, stoppable() as stop:
        try:
            code = _code(command, stop)
        except KeyboardInterrupt:
            code = _stopped(stop)
        out.flush()
        if out.complaint:
            _say(f"what it prints can't be written ({out.complaint}); results are stored all the same")
            code = code or 2
        return code


def _code(command: Callable[[], object], stop: Stop) -> int:
    try:
        for word in sys.argv:
            require_text(word, "the command line")
        if sys.argv[1:2] != ["doctor"]:  # which says what is wrong with them
            refuse_overwritten()
            registry.import_own()
        command()
    except (UserError, ContractError) as error:
        _say(str(error))
        return 2
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        _say(f"{error.strerror}: {error.filename!r} has {len(str(error.filename)):,} letters; name a shorter one")
        return 2
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns KeyboardInterrupt into this
            return _stopped(stop)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _stopped(stop: Stop) -> int:
    console(stderr=True).print(stop.sentence(), soft_wrap=True)
    return stop.code


def _say(sentence: str) -> None:
    # a word of 5,000 letters hides what is said of it; a command's list of names stays whole, or it can't be run
    readable = re.sub(r"([^\s,]{100})[^\s,]{150,}", r"\1...", sentence)
    console(stderr=True).print(Text(f"bench: {readable}"), soft_wrap=True)
