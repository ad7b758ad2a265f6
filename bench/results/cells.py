"""Listing and reading of all results (cells) below a folder, with notes on files that are left out."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.api import UserError
from bench.api.options import RUNS
from bench.results.files import FAILED, PARTIAL, RESERVED, path_of, read
from bench.results.row import ResultRow

_RESULT_NAME = re.compile(r".+--.+--s-?\d+(--[0-9a-f]{8})?(--n\d+)?(\.failed)?\.json")
"""Pattern of the names of result files, as `bench.results.files.path_of` builds them."""
_MAX_REASON = 120
"""Largest number of characters of a failure's reason that a note shows."""


def read_all(folder: Path, *, partial: bool = False) -> list[ResultRow]:
    """Read the `ResultRow` of each result below a folder, sorted by file path; results with `--limit` come last.

    Args:
        folder: the results folder.
        partial: whether to read results of runs with `--limit`, too.

    Raises:
        UserError: there is no such folder, or a file in it is invalid.
    """
    return [read_with_note(file) for file in list_result_files(folder, partial=partial).cells]


def read_with_note(path: Path) -> ResultRow:
    """Read the `ResultRow` of a JSON file; add a note if a later run of the same cell failed or was skipped.

    Raises:
        UserError: a file is invalid (see `bench.results.files.read`), or the file of the failed run belongs to another
            cell.
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
    if len(reason) > _MAX_REASON:
        reason = reason[: _MAX_REASON - 1] + "…"
    ended = "was skipped" if last.status == "skipped" else "failed"
    note = f"the last run of seed {row.seed} {ended} ({when}: {reason}); shown is the one before"
    return replace(row, notes=(*row.notes, note))


class ResultFiles(NamedTuple):
    """Paths of the JSON files below a results folder."""

    cells: list[Path]
    """The file of each cell, sorted by path: the one with numbers or, if there is none, the one of the failed run.

    Files of runs with `--limit` come after all others.
    """
    foreign: list[Path]
    """JSON files that are not results."""


def list_result_files(folder: Path, *, partial: bool = False) -> ResultFiles:
    """List the result files that `read_all` reads, and the JSON files that are not results.

    Raises:
        UserError: there is no such folder, or it is that of one model.
    """
    if not folder.is_dir():
        is_here = folder == RUNS and Path("results").is_dir()
        others = ", or show those of another folder: --results results" * is_here
        raise UserError(
            f"results folder '{folder}' does not exist; run something first: bench run --method all{others}"
        )
    models = {file: file.relative_to(folder).parts[0] for file in sorted(folder.glob("*/*/*.json"))}
    files = [file for file, model in models.items() if model not in RESERVED and not model.startswith(".")]
    results = [file for file in files if is_result_file(file)]
    if not results and any(map(is_result_file, folder.glob("*/*.json"))):
        whole = f"--results {folder.resolve().parent} --model {folder.resolve().name}"
        raise UserError(f"folder '{folder}' has the results of one model; expected the folder above it: {whole}")
    # `read_with_note` notes a failed run beside the numbers of an earlier run, if there are any
    cells = [
        file
        for file in results
        if not (file.name.endswith(FAILED) and file.with_name(f"{file.name.removesuffix(FAILED)}.json").is_file())
    ]
    limited = list_result_files(folder / PARTIAL) if partial and (folder / PARTIAL).is_dir() else ResultFiles([], [])
    return ResultFiles([*cells, *limited.cells], [*sorted(set(files) - set(results)), *limited.foreign])


def skipped_notes(folder: Path, *, partial: bool = False) -> list[str]:
    """Return sentences that say which files below a results folder reports leave out.

    If all results are partial, reports show them; then a sentence says so.

    Args:
        folder: the results folder.
        partial: whether results of runs with `--limit` are shown beside others.

    Raises:
        UserError: there is no such folder.
    """
    visible, total = list_result_files(folder, partial=partial), list_result_files(folder, partial=True)
    hidden = len(total.cells) - len(visible.cells)
    notes = []
    if total.foreign:
        notes.append(f"JSON files that are no results are passed over: {len(total.foreign)}, e.g. {total.foreign[0]}")
    if hidden and not visible.cells:
        notes.append("all results here are partial (--limit), and marked so")
    elif hidden:
        notes.append(f"partial results (--limit) are not shown: {hidden}; show them with --partial")
    return notes


def is_result_file(path: Path) -> bool:
    """Return whether a JSON file is a result, by its name or because its content has a `schema_version`.

    A damaged result counts as one, too.
    """
    if _RESULT_NAME.fullmatch(path.name):
        return True
    try:
        return b'"schema_version"' in path.read_bytes()
    except OSError:
        return False
