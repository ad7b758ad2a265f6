"""Removing entries of the store, but none that a running process claims or reads, and nothing outside of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.store.folders import Store
from bench.store.locks import adapter_claim, file_lock, shard_claim, used_models
from bench.store.usage import ADAPTERS, ENTRIES, READINGS, UsageRow


@dataclass(frozen=True)
class Pruned:
    """Entries that go, and those that stay though they were wished away."""

    gone: Sequence[UsageRow]
    held: Sequence[UsageRow]
    """A running process claims them, or reads what is stored of their model."""


def chosen(
    root: Path,
    uses: Iterable[UsageRow],
    kinds: Collection[str] = ENTRIES,
    model: str | None = None,
    seconds: float | None = None,
) -> Pruned:
    """The entries that can be removed now; nothing is removed.

    Args:
        root: the cache folder.
        uses: what lies in it.
        kinds: of entries that may go.
        model: label of their model; None: any.
        seconds: age from which on they may go; None: any.
    """
    latest, in_use = time.time() - (seconds or 0.0), used_models(root)
    gone: list[UsageRow] = []
    held: list[UsageRow] = []
    for use in uses:
        if use.kind in kinds and model in {None, use.model} and (seconds is None or use.written <= latest):
            taken = False  # whether another process holds a claim on it; claims that were never made are not made here
            for path in _claims(root, use):
                if path.exists() or path.with_name(f"{path.name}.lease").exists():
                    try:
                        with file_lock(path, None):
                            pass
                    except OSError:
                        taken = True
            (held if taken or in_use(use.model) else gone).append(use)
    return Pruned(gone, held)


def prune(root: Path, gone: Iterable[UsageRow]) -> Pruned:
    """Remove entries, one at a time and each at once, as others see it; being killed costs nothing but the time.

    Args:
        root: the cache folder.
        gone: entries of `chosen`; those that a process has claimed meanwhile stay.

    Raises:
        UserError: the folder can't be written.
    """
    store, removed, held = Store(root), [], []
    store.prepare()  # and what a process that was killed has left goes
    for use in gone:
        with ExitStack() as holding:
            try:
                for path in _claims(root, use):
                    holding.enter_context(file_lock(path, None))
            except OSError:
                held.append(use)
                continue
            way = (use.path, *use.path.parents[: len(use.path.relative_to(root).parts) - 1])
            if used_models(root)(use.model) or any(each.is_symlink() for each in way):  # it leads out of the store
                held.append(use)
                continue
            store.remove(use.store_kind, use.path.name)
            if use.kind == READINGS:  # nobody else puts anything there while the claim is held
                for folder in use.path.parents[:2]:
                    with suppress(OSError):  # something else lies there
                        folder.rmdir()
                for path in _claims(root, use):
                    with suppress(OSError):
                        path.unlink()
        removed.append(use)
    return Pruned(removed, held)


def _claims(root: Path, use: UsageRow) -> list[Path]:
    """Claims under which others make this entry."""
    if use.kind == READINGS:
        return [shard_claim(root, use.store_kind)]
    return [adapter_claim(root, use.path.name)] if use.kind == ADAPTERS else []
