"""Load transfer matrices (metrics by training corpus and test task) of a folder of results.

`<model>--transfer.json` lists the results of a matrix, with their digests. The matrix is always computed anew from
these results. Numbers in the JSON file are not read, since they could be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.api import UserError
from bench.report.transfer.compute import compute_matrix
from bench.report.transfer.model import CellSource, Matrix, MissingCell
from bench.results.files import model_folder, path_of, read
from bench.results.transfer import MATRIX, About, TransferCell
from bench.store.decoding import decode_record, parse_json

HINT = "make it again: bench analyze transfer"


@dataclass(frozen=True)
class UnreadableMatrix:
    """A stored transfer matrix that can't be shown, and the reason."""

    model: str
    reason: str


@dataclass(frozen=True)
class _Description:
    """The parts of a transfer matrix's JSON file that are read."""

    about: About
    cells: tuple[CellSource, ...]
    missing: tuple[MissingCell, ...]


def load_matrices(
    folder: Path,
    models: Mapping[str, Collection[str]],
    tasks: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Matrix | UnreadableMatrix]:
    """Load the transfer matrices of some models, computed anew from their results.

    Args:
        folder: folder of the matrices and their results; it may be missing.
        models: model -> presets. Matrices of other presets are skipped. The matrices are returned in this order of
            models.
        tasks: matrices that test none of these are skipped, too; empty for all.
        say: receives a message before long work.
    """
    matrices: list[Matrix | UnreadableMatrix] = []
    for model, presets in models.items():
        path = folder / f"{model_folder(model)}{MATRIX}"
        if not path.is_file():
            continue
        try:
            description = _read_description(path)
            if description.about.preset in presets and (not tasks or {*tasks} & {*description.about.tests}):
                matrices.append(compute_matrix(_cells(description, folder), description.about, say))
        except UserError as error:
            matrices.append(UnreadableMatrix(model, f"{error}; {HINT}"))
    return matrices


def _read_description(path: Path) -> _Description:
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        if isinstance(values, dict) and "cells" in values:
            return decode_record({name: values.get(name) for name in ("about", "cells", "missing")}, _Description)
    except OSError as error:
        raise UserError(f"{path.name} can't be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name} is no matrix ({error})") from error
    raise UserError(f"{path.name} does not say which results it is made of")


def _cells(description: _Description, folder: Path) -> list[TransferCell]:
    """Return the cells of a matrix, with the results below `folder` of which it was made.

    Raises:
        UserError: a result is missing, or is another one than then.
    """
    cells = []
    for cell in description.cells:
        place = PurePosixPath(cell.file)
        path = folder / place
        if place.is_absolute() or ".." in place.parts or not path.is_file():
            raise UserError(f"{cell.file}, a result that it is made of, is not there")
        row = read(path)
        if row.records_digest != cell.records_digest or path_of(row, folder) != path:
            raise UserError(f"{cell.file} is no longer the result that it was made of")
        cells.append(TransferCell(cell.method, cell.test, cell.corpus, row, path))
    return cells + [TransferCell(gap.method, gap.test, gap.corpus, missing=gap.reason) for gap in description.missing]
