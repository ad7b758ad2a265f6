"""All 20 data sets in the Hub's columns, made up: three rows of each that go round, each time with another question.

`fixtures/ct_rows.json` has the rows; of the train splits also those that filters leave out or count, at their places
(`odd`); the column that tells rows apart (`asked`); and how many rows the Hub has (`sizes`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, overload

import pytest

from bench.api import DataCard, Row, Source, Split, UserError

MADE_UP = json.loads((Path(__file__).parents[3] / "fixtures/ct_rows.json").read_text(encoding="utf-8"))
HUB_ROWS: dict[str, list[dict[str, Any]]] = MADE_UP["rows"]
NAMES = MappingProxyType(
    {
        "ct/ai2_arc/ARC-Easy": "arc", "ct/ai2_arc/ARC-Challenge": "arc_challenge", "ct/openbookqa/main": "obqa",
        "ct/social_i_qa/default": "siqa",
    }
)  # fmt: skip


class HubRows(Sequence[Row]):
    """Rows that are made when they are asked for; counts how many were."""

    def __init__(self, name: str, where: str, n: int, columns: Sequence[str], *, odd: bool) -> None:
        found = HUB_ROWS[name][0]
        missing = [column for column in columns if column not in found]
        if missing:
            raise UserError(f"{where}: expected the column {', '.join(missing)}, found only {', '.join(found)}")
        self._rows = [{column: row[column] for column in columns} for row in HUB_ROWS[name]]
        self._odd = MADE_UP["odd"].get(name, {}) if odd else {}
        asked = MADE_UP["asked"][name]
        self._asked = asked if asked in columns and n > 3 else ""
        self._unlabelled = name == "snli" and "label" in columns
        self._where, self._n = where, n
        self.made = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, range(self._n))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._n))]
        if not 0 <= index < self._n:
            raise IndexError(index)
        return self._row(index)

    def _row(self, i: int) -> Row:
        self.made += 1
        values = self._rows[i % 3]
        odd = self._odd.get(str(i), {})
        values = values | {column: value for column, value in odd.items() if column in values}
        if self._asked:
            values = values | {self._asked: f"{values[self._asked]} No. {i}"}
        if self._unlabelled and i % 63 == 50:  # 158 of 10,000, as on the Hub
            values = values | {"label": -1}
        return Row(i, f"{self._where} row {i}", values)


class HubLike(Source):
    """Has every split of every card, with as many rows as the Hub has, unless told otherwise."""

    def __init__(self, sizes: Mapping[str, int] = MappingProxyType({}), absent: Sequence[str] = ()) -> None:
        self.sizes = MADE_UP["sizes"] | dict(sizes)
        self.absent = absent
        self.tables: list[tuple[str, HubRows]] = []

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> HubRows:
        path = f"{card.folder}/{card.splits[split]}"
        name = NAMES.get(card.folder) or card.folder.removeprefix("ct/").removeprefix("super_glue/").partition("/")[0]
        rows = HubRows(name, f"{path}.parquet", self.sizes[path], columns, odd=split == "train")
        self.tables.append((path, rows))
        return rows

    def has(self, card: DataCard, split: Split) -> bool:
        return split in card.splits and f"{card.folder}/{card.splits[split]}" not in self.absent

    def made(self, path: str) -> int:
        """Rows of a split that were asked for."""
        return sum(rows.made for where, rows in self.tables if where == path)


@pytest.fixture(scope="session")
def hub() -> SimpleNamespace:
    """The made-up Hub: `like(sizes, absent)`, a source, and `row(name, i)`, a row of a data set's, changeable."""

    def row(name: str, i: int, **changes: Any) -> Row:
        family = "anli" if name.startswith("anli") else name
        return Row(i, f"{name}.parquet row {i}", copy.deepcopy(HUB_ROWS[family][i]) | changes)

    like: Callable[..., HubLike] = HubLike
    return SimpleNamespace(like=like, row=row, rows=HUB_ROWS)
