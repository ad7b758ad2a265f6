"""The cells of a results folder: which of its files are results, and what is shown of each."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.api import UserError
from bench.results.files import FAILED, PARTIAL, RESERVED, path_of, read
from bench.results.row import ResultRow

_OWN = re.compile(r".+--.+--s-?\d+(--[0-9a-f]{8})?(--n\d+)?(\.failed)?\.json")
"""Names that `bench.results.files.path_of` gives."""
_LONGEST = 120
"""Letters of a reason in a note."""


def read_all(folder: Path, *, partial: bool = False) -> list[ResultRow]:
    """All rows below a results folder, in the order of their paths.

    Args:
        folder: of results.
        partial: also the rows of runs with `--limit`.

    Raises:
        UserError: there is no such folder, or a file in it is not as it must be.
    """
    return [shown(file) for file in found(folder, partial=partial).cells]


def shown(path: Path) -> ResultRow:
    """The row of a JSON file, with a note where a later run of it ended without numbers.

    Raises:
        UserError: as `read`.
    """
    row, failed = read(path), path.with_suffix(FAILED)
    if row.status != "ok" or not failed.is_file():
        return row
    last = read(failed)
    if path_of(last, Path()).parts[-3:] != failed.parts[-3:]:
        raise UserError(
            f"result {failed} says that it is of another cell: {path_of(last, Path()).name}; don't rename"
            " results, and delete this one"
        )
    when = datetime.fromtimestamp(failed.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
    reason = " ".join((last.reason or "no reason given").split())
    if len(reason) > _LONGEST:
        reason = reason[: _LONGEST - 1] + "…"
    ended = "was skipped" if last.status == "skipped" else "failed"
    note = f"the last run of seed {row.seed} {ended} ({when}: {reason}); shown is the one before"
    return replace(row, notes=(*row.notes, note))


class Found(NamedTuple):
    """JSON files below a results folder."""

    cells: list[Path]
    """One for each cell, in the order of their paths: with numbers where it ever had them."""
    foreign: list[Path]
    """Files that are no results."""


def found(folder: Path, *, partial: bool = False) -> Found:
    """The JSON files that `read_all` reads.

    Raises:
        UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"results folder {str(folder)!r} does not exist; run something first: bench run --method all")
    models = {file: file.relative_to(folder).parts[0] for file in sorted(folder.glob("*/*/*.json"))}
    whole = [file for file, model in models.items() if model not in RESERVED and not model.startswith(".")]
    own = [file for file in whole if is_own(file)]
    # a run that ended without numbers is told with those of a run before, if there are any
    cells = [
        file
        for file in own
        if not (file.name.endswith(FAILED) and file.with_name(f"{file.name.removesuffix(FAILED)}.json").is_file())
    ]
    limited = found(folder / PARTIAL) if partial and (folder / PARTIAL).is_dir() else Found([], [])
    return Found([*cells, *limited.cells], [*sorted(set(whole) - set(own)), *limited.foreign])


def passed_over(folder: Path, *, partial: bool = False) -> list[str]:
    """Sentences on what is below a results folder and is not shown.

    Args:
        folder: of results.
        partial: rows of runs with `--limit` are shown.

    Raises:
        UserError: there is no such folder.
    """
    here, every = found(folder, partial=partial), found(folder, partial=True)
    hidden = len(every.cells) - len(here.cells)
    said = []
    if every.foreign:
        said.append(f"JSON files that are no results are passed over: {len(every.foreign)}, e.g. {every.foreign[0]}")
    if hidden and not here.cells:
        said.append("all results here are partial (--limit), and marked so")
    elif hidden:
        said.append(f"partial results (--limit) are not shown: {hidden}; show them with --partial")
    return said


def is_own(path: Path) -> bool:
    """Whether a JSON file is a result, be it a damaged one: by its name, or else by what stands in it."""
    if _OWN.fullmatch(path.name):
        return True
    try:
        return b'"schema_version"' in path.read_bytes()
    except OSError:
        return False
