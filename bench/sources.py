"""Where a task's rows come from: the Hub at the card's revision, or a folder of Parquet files with the Hub's columns.

The folder of `--data-dir` holds `<card.folder>/<source split>.parquet`, e.g. `mmlu/test.parquet`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from bench.api import DataCard, Row, Source, Split, UserError

if TYPE_CHECKING:
    import pyarrow as pa

ENVIRONMENT = "CONFBENCH_DATA"
"""Names a data folder where `--data-dir` is not given."""

PROBE_SECONDS = 10.0
"""How long one question to the Hub may take; the libraries' own retries would make an offline user wait for longer."""


def open_source(data_dir: Path | None) -> FolderSource | HubSource:
    """The folder given with `--data-dir` or else in `$CONFBENCH_DATA`, or the Hub.

    Raises:
        UserError: what was given is no folder.
    """
    if data_dir is not None:
        return FolderSource(data_dir, "--data-dir")
    named = os.environ.get(ENVIRONMENT)
    return FolderSource(Path(named), f"${ENVIRONMENT}") if named else HubSource()


def _source_split(card: DataCard, split: Split) -> str:
    if split not in card.splits:
        raise UserError(f"Expected one of the splits {', '.join(sorted(card.splits))}, got {split!r}")
    return card.splits[split]


class TableRows(Sequence[Row]):
    """The rows of an Arrow table; each is made when it is asked for, so that a large table costs no objects."""

    def __init__(self, table: pa.Table, name: str) -> None:
        self._table = table
        self._name = name

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        index = 0
        for batch in self._table.to_batches(max_chunksize=1024):
            for values in batch.to_pylist():
                yield self._row(index, values)
                index += 1

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        return self._row(position, self._table.slice(position, 1).to_pylist()[0])

    def _row(self, index: int, values: dict[str, Any]) -> Row:
        return Row(index, f"{self._name} row {index}", values)


def _require_columns(name: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in found]
    if missing:
        raise UserError(
            f"{name}: expected the column {', '.join(missing)}, found only {', '.join(found) or 'none'};"
            " use a file with the columns of the Hub"
        )


# --- folder -----------------------------------------------------------------------------------------------------------


class FolderSource(Source):
    """Parquet files below a folder; messages name them relative to it."""

    def __init__(self, data_dir: Path, given_as: str = "--data-dir") -> None:
        if not data_dir.is_dir():
            raise UserError(f"Expected a folder of data files, got {given_as} {data_dir}, which is not a folder")
        self._data_dir = data_dir
        self._given_as = given_as

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Rows of the split's file, with exactly these columns, in the file's order.

        Raises:
            UserError: the file is missing, can't be read, or lacks a column.
        """
        name = self._name(card, split)
        return TableRows(self._table(name, columns), name)

    def has(self, card: DataCard, split: Split) -> bool:
        """Whether the split's file is there."""
        return split in card.splits and (self._data_dir / self._name(card, split)).is_file()

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """What a result must say about the split's origin: the file, and the SHA-256 of its bytes."""
        name = self._name(card, split)
        with self._path(name).open("rb") as file:
            return {"source": "folder", "file": name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}

    def _name(self, card: DataCard, split: Split) -> str:
        return f"{card.folder}/{_source_split(card, split)}.parquet"

    def _path(self, name: str) -> Path:
        path = self._data_dir / name
        if not path.is_file():
            raise UserError(
                f"Expected the file {name} in the folder given by {self._given_as}, but it is not there;"
                f" put it there, or leave {self._given_as} out to load from the Hub"
            )
        return path

    def _table(self, name: str, columns: Sequence[str]) -> pa.Table:
        import pyarrow as pa
        from pyarrow import parquet

        path = self._path(name)
        try:
            with parquet.ParquetFile(path) as file:
                _require_columns(name, columns, file.schema_arrow.names)
                return file.read(columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].replace(str(self._data_dir), "").strip()
            raise UserError(
                f"{name}: expected a whole Parquet file, but it can't be read ({reason}); copy it again"
            ) from error


# --- Hub --------------------------------------------------------------------------------------------------------------


class HubSource(Source):
    """Data sets of the Hugging Face Hub at the revision of the task's card; what was loaded once needs no network."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str | None, str | None, str], Any] = {}

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Rows of the split, with exactly these columns, in the data set's order.

        Raises:
            UserError: the Hub can't be reached and nothing is cached, access is refused, the cached copy is of another
                revision, or a column is missing.
        """
        name = f"{card.hub}@{(card.revision or 'main')[:8]} {_source_split(card, split)}"
        dataset = self._load(card, split)
        _require_columns(name, columns, dataset.column_names)
        return TableRows(dataset.select_columns(list(columns)).with_format("arrow")[:], name)

    def has(self, card: DataCard, split: Split) -> bool:
        """The Hub has every split that a card names."""
        return split in card.splits

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """What a result must say about the split's origin: the data set, and the revision that was in fact loaded."""
        revision = _revision(self._load(card, split)) or "unknown"
        return {"source": "hub", "hub": str(card.hub), "split": _source_split(card, split), "revision": revision}

    def _load(self, card: DataCard, split: Split) -> Any:
        key = (str(card.hub), card.config, card.revision, _source_split(card, split))
        if key not in self._loaded:
            self._loaded[key] = _load_dataset(card, key[-1])
        return self._loaded[key]


def _load_dataset(card: DataCard, source_split: str) -> Any:
    import datasets

    online = _hub_answers(card)
    try:
        with _offline(not online):
            dataset = datasets.load_dataset(
                card.hub,
                None if card.files else card.config,
                data_files={source_split: card.files.format(split=source_split)} if card.files else None,
                split=source_split,
                revision=card.revision,
            )
    except Exception as error:  # of `datasets`, `huggingface_hub`, or the HTTP library below them
        raise _explained(card, error, online=online) from error
    revision = _revision(dataset)
    if card.revision is not None and revision not in {None, card.revision}:
        # offline, `datasets` gives the latest copy that it has, whatever revision was asked for
        raise UserError(
            f"Expected {card.hub} at revision {card.revision}, but the Hub can't be reached and the cached copy is"
            f" {revision}; connect once, or name a folder of Parquet files with --data-dir"
        )
    return dataset


def _hub_answers(card: DataCard) -> bool:
    """Ask once, without the retries of the loading functions.

    Raises:
        UserError: the Hub answers that the data set is gated, or that there is none.
    """
    import datasets
    from huggingface_hub import HfApi, errors

    if datasets.config.HF_HUB_OFFLINE:
        return False
    api = HfApi(endpoint=datasets.config.HF_ENDPOINT)
    try:
        api.dataset_info(str(card.hub), revision=card.revision, timeout=PROBE_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # gated ones are among the first
        raise _explained(card, error, online=True) from error
    except Exception:  # noqa: BLE001  (the HTTP library below huggingface_hub changes: requests, httpx, httpx2)
        return False
    return True


@contextmanager
def _offline(offline: bool) -> Iterator[None]:  # noqa: FBT001  (a condition, read at the `with`)
    """Keep `datasets` from retrying for half a minute what the probe has just found unreachable."""
    import datasets

    before, logger = datasets.config.HF_HUB_OFFLINE, logging.getLogger("datasets")
    level = logger.level
    datasets.config.HF_HUB_OFFLINE = before or offline
    logger.setLevel(logging.ERROR if offline else level)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
        logger.setLevel(level)


def _explained(card: DataCard, error: Exception, *, online: bool) -> UserError:
    from huggingface_hub import errors

    instead = "name a folder of Parquet files with --data-dir"
    if isinstance(error, errors.GatedRepoError) or "is a gated dataset" in str(error):
        # `datasets` turns the Hub's GatedRepoError into one that also stands for data sets that do not exist
        return UserError(
            f"{card.hub} is gated: expected a token with access, found none that the Hub accepts;"
            f" accept its terms on the Hub and run: hf auth login; or {instead}"
        )
    if not online:
        return UserError(
            f"Can't load {card.hub}: the Hub can't be reached and nothing fitting is cached; connect once, or {instead}"
        )
    said = next(iter(str(error).splitlines()), type(error).__name__)
    return UserError(f"Can't load {card.hub} (config {card.config}, revision {card.revision}): {said}; {instead}")


def _revision(dataset: Any) -> str | None:
    """The commit that a data set came from: the last folder of its place in the cache."""
    files = dataset.cache_files
    return Path(files[0]["filename"]).parent.name if files else None
