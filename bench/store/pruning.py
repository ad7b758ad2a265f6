"""Removal of entries from the store. Entries that a running process uses stay; nothing outside the store is touched."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.store.disk_cache import Store
from bench.store.lines import asked_path
from bench.store.locks import adapter_claim, file_lock, shard_claim, used_models
from bench.store.usage import ADAPTERS, ENTRIES, READINGS, SERVERS, UsageRow, list_usage


@dataclass(frozen=True)
class PruneResult:
    """Result of selecting or removing entries: `gone` are removable or removed, `held` stay."""

    gone: Sequence[UsageRow]
    held: Sequence[UsageRow]
    """Selected entries that stay: a running process has locked them, or uses their model. In the result of `prune` also
    entries whose path leads through a link, and entries that couldn't be removed."""


def select_entries(
    root: Path,
    rows: Collection[UsageRow],
    kinds: Collection[str] = ENTRIES,
    model: str | None = None,
    seconds: float | None = None,
) -> PruneResult:
    """Select the entries that can be removed now; nothing is removed.

    Args:
        root: the cache folder.
        rows: rows of `list_usage`, for entries and other folders of the cache.
        kinds: kinds of the entries to select.
        model: label of the model whose entries are selected; None for all models.
        seconds: minimum age of an entry in seconds since its last write; None for any age.
    """
    newest, is_used = time.time() - (seconds or 0.0), used_models(root)
    removable: list[UsageRow] = []
    in_use_rows: list[UsageRow] = []
    for row in rows:
        if row.kind in kinds and model in {None, row.model} and (seconds is None or row.written <= newest):
            locked = False  # whether another process locks the entry; missing lock files are not created here
            for path in _claims(root, row):
                if path.exists() or path.with_name(f"{path.name}.lease").exists():
                    try:
                        with file_lock(path, None):
                            pass
                    except OSError:
                        locked = True
            (in_use_rows if locked or is_used(row.model) else removable).append(row)
    left = {row.model for row in {*rows} - {*removable} if row.kind != SERVERS} - {""}
    # while anything of a server's model stays, so does what tells another model from it
    return PruneResult([row for row in removable if row.kind != SERVERS or row.model not in left], in_use_rows)


def prune(root: Path, gone: Iterable[UsageRow]) -> PruneResult:
    """Remove entries one at a time, each atomically, so that an interruption does no harm.

    What a server answered goes with the shard's last entry; with `servers` also that of shards which have none yet.

    Args:
        root: the cache folder.
        gone: entries that `select_entries` found removable; entries that a process uses meanwhile stay.

    Raises:
        UserError: the cache folder can't be written.
    """
    store, removed, skipped = Store(root), list[UsageRow](), list[UsageRow]()
    store.prepare()  # also removes temporary folders of dead processes
    for row in gone:
        with ExitStack() as locks:
            try:
                for path in _claims(root, row):
                    locks.enter_context(file_lock(path, None))
            except OSError:
                skipped.append(row)
                continue
            parents = (row.path, *row.path.parents[: len(row.path.relative_to(root).parts) - 1])
            # a link may lead out of the store
            if used_models(root)(row.model) or any(parent.is_symlink() for parent in parents):
                skipped.append(row)
                continue
            store.remove(row.store_kind, row.path.name)
            if row.kind == READINGS:  # nobody else writes into the shard's folder while the lock is held
                for folder in row.path.parents[:2]:
                    with suppress(OSError):  # not empty
                        folder.rmdir()
                for path in _claims(root, row):
                    with suppress(OSError):
                        path.unlink()
        (skipped if row.path.exists() else removed).append(row)
    asked = {asked_path(root, row.store_kind) for row in removed if row.kind == READINGS}
    left = list_usage(root)
    if {SERVERS} & {row.kind for row in removed} - {row.kind for row in left}:  # no name says whose an unread one is
        asked |= {*(root / "asked").glob("[!t]*.jsonl")}  # all but the texts of tokens
    kept = {asked_path(root, row.store_kind) for row in left if row.kind == READINGS}
    for path in asked - kept:
        if path.is_file() and not path.parent.is_symlink():
            claim = root / "claims" / f"shard-{path.stem}.lock"  # as shard_claim names it
            with suppress(OSError), file_lock(claim, None):
                path.unlink()
                claim.unlink()
    return PruneResult(removed, skipped)


def _claims(root: Path, row: UsageRow) -> list[Path]:
    """Return the lock files that a process holds while it computes and writes an entry."""
    if row.kind == READINGS:
        return [shard_claim(root, row.store_kind)]
    return [adapter_claim(root, row.path.name)] if row.kind == ADAPTERS else []
