"""Answers that a judge is being asked about: no two runs ask about one, and what a killed run left is told.

`<cache>/verdicts/claims/<16 hex of the judge>-<16 hex of the answer>` is locked while the call is under way and removed
when its verdict is written. The lock dies with its owner; a file without a lock is a call that was never finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench.grading.grade import JudgeCase
from bench.store.folders import key_of

if TYPE_CHECKING:
    from filelock import FileLock

FOLDER = "claims"
_TRIES = 100
"""Times that the folder is made again, since others may end at that moment."""


class Claim:
    """The right to ask about one answer; `end` it whatever comes of the call."""

    def __init__(self, lock: FileLock | None) -> None:
        self._lock = lock

    def end(self, *, finished: bool) -> None:
        """Give it back; one that is not finished leaves its file, for its call may have been paid."""
        if self._lock is None:
            return
        if finished:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
        self._lock.release()


class InFlight:
    """The calls under way of one judge, in all runs that share a cache."""

    def __init__(self, folder: Path, judge: str) -> None:
        """Nothing is made yet.

        Args:
            folder: of the verdicts.
            judge: name of the judge's file in it, without its suffix.
        """
        self.folder = folder / FOLDER
        self.judge = judge

    def claim(self, case: JudgeCase) -> Claim | None:
        """The right to ask about an answer; None while another run asks.

        Where the file system has no locks every run has it.

        Raises:
            OSError: the file can't be made.
        """
        from filelock import FileLock, Timeout

        from bench.store.claims import NO_LOCKS

        lock = FileLock(self._path(case), fallback_to_soft=False)
        try:
            self._acquire(lock)
        except Timeout:
            return None
        except OSError as error:
            if error.errno in NO_LOCKS:
                return Claim(None)
            raise
        return Claim(lock)

    def _acquire(self, lock: FileLock) -> None:
        """Lock a file in the folder, which a run that is over may have removed since it was made."""
        for again in range(_TRIES, -1, -1):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock.acquire(blocking=False)
            except (FileNotFoundError, FileExistsError):
                if not again:
                    raise
            else:
                return

    def left_behind(self, cases: Iterable[JudgeCase]) -> int:
        """Number of these answers that were asked about by a run that was killed; it is told once.

        Raises:
            OSError: the files can't be read.
        """
        names = {path.name for path in self.folder.glob(f"{self.judge}-*")}
        left = [case for case in cases if self._path(case).name in names] if names else []
        claims = [claim for claim in map(self.claim, left) if claim is not None]
        for claim in claims:
            claim.end(finished=True)
        return len(claims)

    def tidy(self) -> None:
        """Remove the folder where nothing is in it."""
        with suppress(OSError):
            self.folder.rmdir()

    def _path(self, case: JudgeCase) -> Path:
        return self.folder / f"{self.judge}-{key_of(case.fields())[:16]}"
