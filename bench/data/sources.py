"""Sources of a task's rows: the Hub at the revision that the task's card names, or a folder of Parquet files.

The folder, given with `--data-dir`, has `<card.folder>/<split of the data set>.parquet`, e.g. `mmlu/test.parquet`, or
the Hub's own files, e.g. `mmlu/test-00000-of-00001.parquet`.
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
from bench.api.errors import AbsentError, first_line
from bench.data.tables import TableRows, parquet_table, require_columns, require_rows
from bench.store.disk_cache import digest_file

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

ENVIRONMENT = "CONFBENCH_DATA"
"""Name of the environment variable with the folder of data sets; used if `--data-dir` is not given."""

_PROBE_SECONDS = 10.0
"""Seconds after which one request to the Hub fails; the Hub's own libraries would try for longer."""

INSTEAD = "name a folder of Parquet files with --data-dir"
"""What error messages about the Hub propose to do instead."""


def open_source(data_dir: Path | None) -> FolderSource | HubSource:
    """Open the source of data sets: the folder given with `--data-dir` or in `$CONFBENCH_DATA`, or else the Hub.

    Raises:
        UserError: the path is no folder.
    """
    return open_folder(data_dir) or HubSource()


def open_folder(data_dir: Path | None) -> FolderSource | None:
    """Open the folder of data sets given with `--data-dir` or in `$CONFBENCH_DATA`; None if neither is given.

    Raises:
        UserError: the path is no folder.
    """
    if data_dir is not None:
        return FolderSource(data_dir, "--data-dir")
    folder = os.environ.get(ENVIRONMENT)
    return FolderSource(Path(folder), f"${ENVIRONMENT}") if folder else None


def _source_split(card: DataCard, split: Split) -> str:
    if split not in card.splits:
        raise UserError(f"Expected one of the splits {', '.join(sorted(card.splits))}, got {split!r}")
    return card.splits[split]


# --- folder -----------------------------------------------------------------------------------------------------------


class FolderSource(Source):
    """Source that reads rows from Parquet files below a folder; messages name these files relative to the folder."""

    def __init__(self, data_dir: Path, given_as: str = "--data-dir") -> None:
        if not data_dir.is_dir():
            raise UserError(f"Expected a folder of data files, got {given_as} {data_dir}, which is not a folder")
        self._data_dir = data_dir
        self._given_as = given_as

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Read the rows of a split's files, in the files' order, with exactly these columns.

        Raises:
            UserError: a file is missing, can't be read, has no row, or lacks a column.
        """
        paths = self._paths(card, split)
        return TableRows({name: parquet_table(path, name, columns) for name, path in paths.items()})

    def has(self, card: DataCard, split: Split) -> bool:
        """Return whether the folder has the files of a split."""
        return split in card.splits and bool(self._list_files(card, split))

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """Return the provenance of a split: its files and their SHA-256."""
        digests = {name: digest_file(path) for name, path in self._paths(card, split).items()}
        return {"source": "folder", "file": ", ".join(digests), "sha256": ", ".join(digests.values())}

    def _list_files(self, card: DataCard, split: Split) -> list[str]:
        """Return the files of a split: one that is named like the split, else the parts named as on the Hub."""
        stem = _source_split(card, split)
        folder = self._data_dir / card.folder
        if (folder / f"{stem}.parquet").is_file():
            return [f"{card.folder}/{stem}.parquet"]
        parts = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-\d{{5}}\.parquet")
        return sorted(f"{card.folder}/{path.name}" for path in folder.glob("*.parquet") if parts.fullmatch(path.name))

    def _paths(self, card: DataCard, split: Split) -> dict[str, Path]:
        names = self._list_files(card, split)
        if not names:
            raise AbsentError(
                f"Expected the file {card.folder}/{_source_split(card, split)}.parquet in the folder given by"
                f" {self._given_as}, but it is not there; put it there, or leave {self._given_as} out to load from"
                " the Hub"
            )
        if "-of-" in names[0]:  # every part of train-00000-of-00002.parquet and so on must exist once
            last = names[-1].removesuffix(".parquet").rpartition("-of-")[2]
            stem = names[0].removesuffix(".parquet")[: -len("-00000-of-00000")]
            expected = [f"{stem}-{part:05d}-of-{last}.parquet" for part in range(int(last))]
            if names != expected:
                unexpected = sorted(set(expected) ^ set(names))
                raise UserError(
                    f"{stem}: expected the {int(last)} parts that {names[-1]} is one of, found {len(names)};"
                    f" see {', '.join(unexpected[:3])} and copy the folder again"
                )
        return {name: self._data_dir / name for name in names}


# --- Hub --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CachedSplit:
    """A split of a data set on the Hub, after it was loaded to this machine."""

    revision: str | None
    """Commit of the data set that was loaded."""
    dataset: Any = None
    """The split as `datasets.Dataset`; None if it was loaded as a single file."""
    file: Path = Path()


class HubSource(Source):
    """Source that loads data sets from the Hugging Face Hub, each at the revision in its card.

    Data sets in the local cache need no network.
    """

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str | None, str, str | None, str], _CachedSplit] = {}

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> TableRows:
        """Load the rows of a split, in the data set's order, with exactly these columns.

        Raises:
            UserError: the Hub can't be reached and nothing is cached, the data set or its revision does not exist,
                access is refused, the disk is full, the cached copy is of another revision, a file can't be read or has
                no row, or a column is missing.
        """
        name = f"{card.hub}@{(card.revision or 'main')[:8]} {_source_split(card, split)}"
        loaded = self._load(card, split)
        if loaded.dataset is None:
            return TableRows({name: parquet_table(loaded.file, name, columns, _reload_advice(str(card.hub)))})
        require_columns(name, columns, loaded.dataset.column_names)
        require_rows(name, len(loaded.dataset))
        return TableRows({name: loaded.dataset.select_columns(list(columns)).with_format("arrow")[:]})

    def has(self, card: DataCard, split: Split) -> bool:
        """Return whether the card names the split. The Hub has every split that a card names."""
        return split in card.splits

    def describe(self, card: DataCard, split: Split) -> dict[str, str]:
        """Return the provenance of a split: the data set and the revision that was loaded."""
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
            # `datasets.load_dataset(data_files=...)` does not find its cache offline: it hashes other arguments then
            path = hub_file(hub, _file_of(card, split), card.revision, online=online)
            loaded = _CachedSplit(revision_of(path), file=path)
        else:
            import datasets

            before, logger = datasets.config.HF_HUB_OFFLINE, logging.getLogger("datasets")
            level = logger.level
            try:
                if not online:  # else it retries for 30 s, though the probe has failed
                    datasets.config.HF_HUB_OFFLINE = True
                    logger.setLevel(logging.ERROR)
                dataset = datasets.load_dataset(card.hub, card.config, split=key[-1], revision=card.revision)
            except Exception as error:  # of `datasets`, `huggingface_hub`, or the HTTP library below them
                requested = f"config {card.config}, revision {card.revision or 'main'}"
                raise hub_error(str(card.hub), error, online=online, requested=requested) from error
            finally:
                datasets.config.HF_HUB_OFFLINE = before
                logger.setLevel(level)
            files = dataset.cache_files  # in a folder named by the commit
            revision = Path(files[0]["filename"]).parent.name if files else None
            if card.revision is not None and revision not in {None, card.revision}:
                # offline, `datasets` returns the latest cached copy of any revision
                raise UserError(
                    f"Expected {card.hub} at revision {card.revision}, but the Hub can't be reached and the cached copy"
                    f" is {revision}; connect once, or {INSTEAD}"
                )
            loaded = _CachedSplit(revision, dataset)
        self._loaded[key] = loaded
        return loaded


def _file_of(card: DataCard, split: Split) -> str:
    return card.files.format(split=_source_split(card, split))


def hub_file(hub: str, file: str, revision: str | None, *, online: bool, instead: str = INSTEAD) -> Path:
    """Download a file of a data set from the Hub, or find it in the local cache; return its local path.

    Args:
        hub: id of the data set.
        file: path in the Hub repository.
        revision: commit or branch; None for main.
        online: whether the Hub can be reached (see `probe`).
        instead: what the error message proposes to do instead; by default to give a folder.

    Raises:
        UserError: the file can't be loaded.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub, file, repo_type="dataset", revision=revision, local_files_only=not online))
    except Exception as error:  # of `huggingface_hub`, the HTTP library below it, or the disk
        raise hub_error(
            hub, error, online=online, requested=f"{file}, revision {revision or 'main'}", instead=instead
        ) from error


def revision_of(path: Path) -> str:
    """Return the commit of a file in the Hub's local cache, which is the folder name below `snapshots`."""
    return path.parts[-path.parts[::-1].index("snapshots")]


def probe(hub: str, revision: str | None, instead: str = INSTEAD) -> DatasetInfo | None:
    """Request the metadata of a data set from the Hub, without retries; None where the Hub can't be reached.

    Raises:
        UserError: the data set is gated, or the data set or its revision does not exist.
    """
    import datasets
    from huggingface_hub import HfApi, errors

    if datasets.config.HF_HUB_OFFLINE:
        return None
    api = HfApi(endpoint=datasets.config.HF_ENDPOINT)
    try:
        return api.dataset_info(hub, revision=revision, timeout=_PROBE_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # gated ones raise the first
        raise hub_error(hub, error, online=True, requested=f"revision {revision or 'main'}", instead=instead) from error
    except Exception:  # noqa: BLE001  (the HTTP library below huggingface_hub changes: requests, httpx, httpx2)
        return None


def hub_error(hub: str, error: Exception, *, online: bool, requested: str, instead: str = INSTEAD) -> UserError:
    """Convert an exception about a data set on the Hub to an error message for the user.

    Args:
        hub: id of the data set.
        error: the exception.
        online: whether the Hub could be reached.
        requested: files and revision that were requested, in words.
        instead: what the message proposes to do instead; by default to give a folder.
    """
    import datasets
    import pyarrow as pa
    from huggingface_hub import errors

    causes: list[BaseException] = []  # the exception chain
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    damage = next((cause for cause in causes if isinstance(cause, pa.ArrowException)), None)
    if any(isinstance(cause, errors.GatedRepoError) or "is a gated dataset" in str(cause) for cause in causes):
        # `datasets` converts GatedRepoError to an exception that it also raises for missing data sets
        text = (
            f"{hub} is gated: expected a token with access, found none that the Hub accepts; accept its terms on the"
            " Hub and run: hf auth login"
        )
    elif any(
        getattr(cause, "errno", None) in {errno.ENOSPC, errno.EDQUOT} or "Not enough disk space" in str(cause)
        for cause in causes  # `datasets` says so in words before it begins
    ):
        cache = Path(datasets.config.HF_CACHE_HOME).expanduser()
        text = (
            f"No space is left on the disk for {hub}, which goes to {cache}; free some, or name another folder with"
            " the environment variable HF_HOME"
        )
    elif damage is not None and "BatchSize must be greater than 0" in str(damage):
        # how `datasets` fails there
        return AbsentError(f"{hub} ({requested}): expected at least one row, but a file has none; or {instead}")
    elif damage is not None:
        text = (
            f"{hub} ({requested}): expected whole Parquet files, but one can't be read ({first_line(damage)});"
            f" {_reload_advice(hub)}"
        )
    elif not online:
        text = f"Can't load {hub} ({requested}): the Hub can't be reached and nothing fitting is cached; connect once"
    else:
        text = f"Can't load {hub} ({requested}): {first_line(error)[:200]}"
    return UserError(f"{text}; or {instead}")


def _reload_advice(hub: str) -> str:
    """Return advice for the error message about a damaged file of a data set from the Hub."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{hub.replace('/', '--')}"
    return f"remove {folder} and run again to load it again"
