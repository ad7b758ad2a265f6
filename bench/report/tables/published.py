"""Load the published numbers, `results/paper/*.csv`, and the reasons why some are no targets for reproduction."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.api import UserError

T = TypeVar("T")
FOLDER = "paper"
"""Folder of published numbers, below the results folder."""
COLUMNS = ("model", "task", "method", "metric", "mean", "std", "table")
_REASON_COLUMNS = ("model", "task", "method", "metric", "reason")
_ANY = "*"

Key = tuple[str, str, str, str]
"""Key of a published number: model, task, method and metric."""


@dataclass(frozen=True)
class Published:
    """One published number, as a fraction."""

    mean: float
    std: float | None
    """Standard deviation over subjects; None if the paper prints none."""
    table: str
    """Label that the paper gives the table with this number."""
    reason: str = ""
    """Why results need not reproduce the number; empty if they should reproduce it."""


def read(results: Path) -> Mapping[Key, Published]:
    """Load the published numbers by model, task, method and metric.

    Args:
        results: results folder. If it has no folder `paper`, the `results/paper` of this repository is read.

    Raises:
        UserError: a file is missing or malformed.
    """
    folder = published_folder(results)
    if folder is None:
        raise UserError(
            f"--against paper: expected the published numbers in {results / FOLDER}, which is not there;"
            " copy results/paper there from the repository"
        )
    reasons = [
        (tuple(line[name] for name in _REASON_COLUMNS[:4]), line["reason"])
        for line in read_csv_rows(folder / "not_targets.csv", _REASON_COLUMNS)
    ]
    cells: dict[Key, Published] = {}
    for line in read_csv_rows(folder / "results.csv", COLUMNS):
        key = (line["model"], line["task"], line["method"], line["metric"])
        matching_reasons = (
            reason
            for pattern, reason in reasons
            if all(expected in {_ANY, value} for expected, value in zip(pattern, key, strict=True))
        )
        try:
            std = finite(line["std"]) / 100 if line["std"] else None
            cells[key] = Published(finite(line["mean"]) / 100, std, line["table"], next(matching_reasons, ""))
        except ValueError as error:
            raise UserError(f"{folder / 'results.csv'}: expected numbers for {'/'.join(key)}, {error}") from error
    return cells


def finite(text: str) -> float:
    """Parse a published number, which must be finite.

    Raises:
        ValueError: the text is no number, or the number is not finite.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"got {text!r}")
    return value


def published_folder(results: Path) -> Path | None:
    """Return the folder of published numbers, in `results` or else in this repository; None if both lack it."""
    checkout = Path(__file__).resolve().parents[3] / "results"
    return next((f for f in (results / FOLDER, checkout / FOLDER) if f.is_dir()), None)


def values_of(
    results: Path, name: str, columns: tuple[str, ...], parse: Callable[[Mapping[str, str]], T], expected: str
) -> list[T]:
    """Parse the lines of a CSV file of published numbers; empty if there is no such file.

    Raises:
        UserError: the file is malformed, or `parse` raises a ValueError.
    """
    folder = published_folder(results)
    if not name or folder is None or not (folder / name).is_file():
        return []
    try:
        return [parse(line) for line in read_csv_rows(folder / name, columns)]
    except ValueError as error:
        raise UserError(f"{folder / name}: expected {expected}, {error}") from error


def read_csv_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read the rows of a CSV file of published numbers.

    Raises:
        UserError: the file can't be read, has other columns than `columns`, or a row lacks a value.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if tuple(reader.fieldnames or ()) != columns:
                raise UserError(f"{path}: expected the columns {', '.join(columns)}, got {reader.fieldnames}")
            lines = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: expected a CSV file in UTF-8, but {error}") from error
    short = [number for number, line in enumerate(lines, start=2) if None in line.values() or None in line]
    if short:
        raise UserError(f"{path} line {short[0]}: expected {len(columns)} values")
    return lines
