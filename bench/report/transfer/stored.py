"""Matrices of a folder of results, computed anew from their cells.

`<model>--transfer.json` says which results a matrix is made of, with the digest of each; its numbers are not read, so
that what is shown is never older than the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.api import UserError
from bench.report.transfer.compute import computed
from bench.report.transfer.model import Matrix, Missing, StoredCell
from bench.results.files import model_folder, path_of, read
from bench.results.transfer import MATRIX, About, TransferCell
from bench.store.decoding import decoded, parsed

AGAIN = "make it again: bench analyze transfer"


@dataclass(frozen=True)
class Unshown:
    """A matrix that is there and can't be shown."""

    model: str
    reason: str


@dataclass(frozen=True)
class _Description:
    """Parts of a matrix's file that are read."""

    about: About
    cells: tuple[StoredCell, ...]
    missing: tuple[Missing, ...]


def stored(
    folder: Path, models: Mapping[str, str], say: Callable[[str], None] = lambda _: None
) -> list[Matrix | Unshown]:
    """Matrices of some models, each with numbers computed from the results that it is made of.

    Args:
        folder: of the matrices and their results; it need not be there.
        models: labels of models, in the order of the answer, with their presets: matrices of others are passed over.
        say: told before long work.
    """
    found: list[Matrix | Unshown] = []
    for model, preset in models.items():
        path = folder / f"{model_folder(model)}{MATRIX}"
        if not path.is_file():
            continue
        try:
            values = parsed(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict) or "cells" not in values:
                raise UserError(f"{path.name} does not say which results it is made of")
            description = decoded({name: values.get(name) for name in ("about", "cells", "missing")}, _Description)
        except (OSError, ValueError, RecursionError, UserError) as error:
            why = str(error)
            if isinstance(error, OSError):
                why = f"{path.name} can't be read ({error.strerror or error})"
            elif not isinstance(error, UserError):
                why = f"{path.name} is no matrix ({error})"
            found.append(Unshown(model, f"{why}; {AGAIN}"))
            continue
        try:
            if description.about.preset == preset:
                cells = []
                for each in description.cells:
                    place = PurePosixPath(each.file)
                    path = folder / place
                    if place.is_absolute() or ".." in place.parts or not path.is_file():
                        raise UserError(f"{each.file}, a result that it is made of, is not there")
                    row = read(path)
                    if row.records_digest != each.records_digest or path_of(row, folder) != path:
                        raise UserError(f"{each.file} is no longer the result that it was made of")
                    cells.append(TransferCell(each.method, each.test, each.corpus, row, path))
                gaps = [TransferCell(m.method, m.test, m.corpus, missing=m.reason) for m in description.missing]
                found.append(computed([*cells, *gaps], description.about, say))
        except UserError as error:
            found.append(Unshown(model, f"{error}; {AGAIN}"))
    return found
