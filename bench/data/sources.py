"""Sources of a task's rows: the Hub at the card's revision, or a folder of Parquet files with the Hub's columns.

The folder of `--data-dir` holds `<card.folder>/<source split>.parquet`, e.g. `mmlu/test.parquet`, or the Hub's own
files, e.g. `mmlu/test-00000-of-00001.parquet`.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api import DataCard, Source, Split, UserError
from bench.data.tables import TableRows, first_line, parquet_table, require_columns, require_rows
from bench.store.folders import digest_file

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

ENVIRONMENT = "CONFBENCH_DATA"
"""Names a data folder where `--data-dir` is not given."""

_PROBE_SECONDS = 10.0
"""Time that one request to the Hub may take; the libraries' own retries would make an offline user wait for longer."""

INSTEAD = "name a folder of Parquet files with --data-dir"
"""Way out that a user always has."""


def open_source(data_dir: Path | None) -> FolderSource | HubSource:
    """The folder given with `--data-dir` or else in `$CONFBENCH_DATA`, or the Hub.

    Raises:
        UserError: what was given is no folder.
    """
    return open_folder(data_dir) or HubSource()


def open_folder(data_dir: Path | None) -> FolderSource | None:
    """The same folder; None where none is named.

    Raises:
        UserError: what was given is no folder.
    """
    if data_dir is not None:
        return FolderSource(data_dir, "--data-dir")
    named = os.environ.get(ENVIRONMENT)
    return FolderSource(Path(named), f"${ENVIRONMENT}") if named else None


def _source_split(card: DataCard, split: Split) -> str:
    if split not in card.splits:
        raise UserError(f"Expected one of the splits {', '.join(sorted(card.splits))}, got {split!r}")
    return card.splits[split]


# --- folder -----------------------------------------------------------------------------------------------------------


class FolderSource(Source):
    """Parquet files below a folder; messages name them relative to it."""

    def __init__(self, data_dir: Path, given_as: str = "--data-dir") -> None:
        if not data_dir.is_dir():
            raise UserError(f"Expected a folder of data files, got {given_as} {data_dir}, which is not a folder")
        self._data_dir = data_dir
        self._given_as = given_as

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Rows of the split's files, with exactly these columns, in the files' order.

        Raises:
            UserError: a file is missing, can't be read, has no row, or lacks a column.
        """
        paths = self._paths(card, split)
        return TableRows({name: parquet_table(path, name, columns) for name, path in paths.items()})

    def has(self, card: DataCard, split: Split) -> bool:
        """Whether the split's files are there."""
        return split in card.splits and bool(self._found(card, split))

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """Statements of a result about the split's origin: the files, and the SHA-256 of their bytes."""
        digests = {name: digest_file(path) for name, path in self._paths(card, split).items()}
        return {"source": "folder", "file": ", ".join(digests), "sha256": ", ".join(digests.values())}

    def _found(self, card: DataCard, split: Split) -> list[str]:
        """Names of the files that are there: one with the split's name, or else parts as the Hub names them."""
        stem = _source_split(card, split)
        folder = self._data_dir / card.folder
        if (folder / f"{stem}.parquet").is_file():
            return [f"{card.folder}/{stem}.parquet"]
        parts = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-\d{{5}}\.parquet")
        return sorted(f"{card.folder}/{path.name}" for path in folder.glob("*.parquet") if parts.fullmatch(path.name))

    def _paths(self, card: DataCard, split: Split) -> dict[str, Path]:
        names = self._found(card, split)
        if not names:
            raise UserError(
                f"Expected the file {card.folder}/{_source_split(card, split)}.parquet in the folder given by"
                f" {self._given_as}, but it is not there; put it there, or leave {self._given_as} out to load from"
                " the Hub"
            )
        if "-of-" in names[0]:  # of train-00000-of-00002.parquet and so on every part has to be there, and once
            last = names[-1].removesuffix(".parquet").rpartition("-of-")[2]
            stem = names[0].removesuffix(".parquet")[: -len("-00000-of-00000")]
            expected = [f"{stem}-{part:05d}-of-{last}.parquet" for part in range(int(last))]
            if names != expected:
                odd = sorted(set(expected) ^ set(names))
                raise UserError(
                    f"{stem}: expected the {int(last)} parts that {names[-1]} is one of, found {len(names)};"
                    f" see {', '.join(odd[:3])} and copy the folder again"
                )
        return {name: self._data_dir / name for name in names}


# --- Hub --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CachedSplit:
    """A split that is on this machine."""

    revision: str | None
    """The commit that it came from."""
    dataset: Any = None
    """Split as `datasets` made it; None where the split is one file."""
    file: Path = Path()


class HubSource(Source):
    """Data sets of the Hugging Face Hub at the revision of the task's card; what was loaded once needs no network."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str | None, str, str | None, str], _CachedSplit] = {}

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Rows of the split, with exactly these columns, in the data set's order.

        Raises:
            UserError: the Hub can't be reached and nothing is cached, access is refused, the disk is full, the cached
                copy is of another revision, a file can't be read or has no row, or a column is missing.
        """
        name = f"{card.hub}@{(card.revision or 'main')[:8]} {_source_split(card, split)}"
        loaded = self._load(card, split)
        if loaded.dataset is None:
            return TableRows({name: parquet_table(loaded.file, name, columns, _load_again(str(card.hub)))})
        require_columns(name, columns, loaded.dataset.column_names)
        require_rows(name, len(loaded.dataset))
        return TableRows({name: loaded.dataset.select_columns(list(columns)).with_format("arrow")[:]})

    def has(self, card: DataCard, split: Split) -> bool:
        """The Hub has every split that a card names."""
        return split in card.splits

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """Statements of a result about the split's origin: the data set, and the revision that was in fact loaded."""
        revision = self._load(card, split).revision or "unknown"
        requested = {} if card.revision == revision else {"asked for": card.revision or "main"}
        file = {"file": _file_of(card, split)} if card.files else {}
        split_name = _source_split(card, split)
        return {"source": "hub", "hub": str(card.hub), "split": split_name, **file, **requested, "revision": revision}

    def _load(self, card: DataCard, split: Split) -> _CachedSplit:
        hub = str(card.hub)
        key = (hub, card.config, card.files, card.revision, _source_split(card, split))
        if key in self._loaded:
            return self._loaded[key]
        online = probe(hub, card.revision) is not None
        if card.files:
            # `datasets.load_dataset(data_files=...)` would load it too, but not find it again without a network: what
            # it looks for in its cache is a hash of other arguments than the one that it wrote
            path = hub_file(hub, _file_of(card, split), card.revision, online=online)
            loaded = _CachedSplit(revision_of(path), file=path)
        else:
            import datasets

            before, logger = datasets.config.HF_HUB_OFFLINE, logging.getLogger("datasets")
            level = logger.level
            try:
                if not online:  # else it retries for half a minute what the probe has just found unreachable
                    datasets.config.HF_HUB_OFFLINE = True
                    logger.setLevel(logging.ERROR)
                dataset = datasets.load_dataset(card.hub, card.config, split=key[-1], revision=card.revision)
            except Exception as error:  # of `datasets`, `huggingface_hub`, or the HTTP library below them
                requested = f"config {card.config}, revision {card.revision or 'main'}"
                raise explained(str(card.hub), error, online=online, requested=requested) from error
            finally:
                datasets.config.HF_HUB_OFFLINE = before
                logger.setLevel(level)
            files = dataset.cache_files  # in folders that are called as the commit
            revision = Path(files[0]["filename"]).parent.name if files else None
            if card.revision is not None and revision not in {None, card.revision}:
                # offline, `datasets` gives the latest copy that it has, whatever revision was asked for
                raise UserError(
                    f"Expected {card.hub} at revision {card.revision}, but the Hub can't be reached and the cached copy"
                    f" is {revision}; connect once, or {INSTEAD}"
                )
            loaded = _CachedSplit(revision, dataset)
        self._loaded[key] = loaded
        return loaded


def _file_of(card: DataCard, split: Split) -> str:
    return card.files.format(split=_source_split(card, split))


def hub_file(hub: str, file: str, revision: str | None, *, online: bool, instead: str = "") -> Path:
    """Path of a data set's file on this machine, downloaded if need be.

    Args:
        hub: the data set.
        file: its path in the repository.
        revision: commit or branch; None: main.
        online: whether the Hub can be reached, as `probe` found.
        instead: what else a user could do; the default is to name a folder.

    Raises:
        UserError: it can't be had.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub, file, repo_type="dataset", revision=revision, local_files_only=not online))
    except Exception as error:  # of `huggingface_hub`, the HTTP library below it, or the disk
        raise explained(
            hub, error, online=online, requested=f"{file}, revision {revision or 'main'}", instead=instead
        ) from error


def revision_of(path: Path) -> str:
    """The commit of a file in the Hub's cache: the folder below `snapshots`."""
    return path.parts[-path.parts[::-1].index("snapshots")]


def probe(hub: str, revision: str | None, instead: str = "") -> DatasetInfo | None:
    """Ask the Hub for a data set once, without the retries of the loading functions; None where it can't be reached.

    Raises:
        UserError: the Hub answers that the data set is gated, or that there is none.
    """
    import datasets
    from huggingface_hub import HfApi, errors

    if datasets.config.HF_HUB_OFFLINE:
        return None
    api = HfApi(endpoint=datasets.config.HF_ENDPOINT)
    try:
        return api.dataset_info(hub, revision=revision, timeout=_PROBE_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # gated ones are among the first
        raise explained(hub, error, online=True, requested=f"revision {revision or 'main'}", instead=instead) from error
    except Exception:  # noqa: BLE001  (the HTTP library below huggingface_hub changes: requests, httpx, httpx2)
        return None


def explained(hub: str, error: Exception, *, online: bool, requested: str, instead: str = "") -> UserError:
    """Why a data set of the Hub can't be had, for the user.

    Args:
        hub: the data set.
        error: what was raised.
        online: whether the Hub could be reached.
        requested: files and revision, in words.
        instead: what else a user could do; the default is to name a folder.
    """
    import datasets
    import pyarrow as pa
    from huggingface_hub import errors

    instead = instead or INSTEAD
    causes: list[BaseException] = []  # the exception and what led to it
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    damage = next((cause for cause in causes if isinstance(cause, pa.ArrowException)), None)
    if any(isinstance(cause, errors.GatedRepoError) or "is a gated dataset" in str(cause) for cause in causes):
        # `datasets` turns the Hub's GatedRepoError into one that also stands for data sets that do not exist
        why = (
            f"{hub} is gated: expected a token with access, found none that the Hub accepts; accept its terms on the"
            " Hub and run: hf auth login"
        )
    elif any(
        getattr(cause, "errno", None) in {errno.ENOSPC, errno.EDQUOT} or "Not enough disk space" in str(cause)
        for cause in causes  # `datasets` says so in words before it begins
    ):
        cache = Path(datasets.config.HF_CACHE_HOME).expanduser()
        why = (
            f"No space is left on the disk for {hub}, which goes to {cache}; free some, or name another folder with"
            " the environment variable HF_HOME"
        )
    elif damage is not None and "BatchSize must be greater than 0" in str(damage):
        why = f"{hub} ({requested}): expected at least one row, but a file has none"  # how `datasets` fails there
    elif damage is not None:
        why = (
            f"{hub} ({requested}): expected whole Parquet files, but one can't be read ({first_line(damage)});"
            f" {_load_again(hub)}"
        )
    elif not online:
        why = f"Can't load {hub} ({requested}): the Hub can't be reached and nothing fitting is cached; connect once"
    else:
        why = f"Can't load {hub} ({requested}): {first_line(error)[:200]}"
    return UserError(f"{why}; or {instead}")


def _load_again(hub: str) -> str:
    """Advice about a damaged file."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{hub.replace('/', '--')}"
    return f"remove {folder} and run again to load it again"
