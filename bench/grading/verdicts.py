"""Verdicts between runs: one line of JSON each, appended and synced one by one, found by all that they depend on.

`<cache>/verdicts/<16 hex of the judge>.jsonl`; a line holds `key`, `judge`, `reported`, `question`, `gold`,
`answer`, `others` where several answers are right, `verdict` (true or false: what a judge could not decide is no
verdict and is asked again) and a `digest` of the others. Several runs may write: `refresh` finds what another one
wrote.

`<cache>/verdicts/claims/<16 hex of the judge>-<16 hex of the answer>` is locked while a run asks about an answer, and
removed when the verdict is written: a file without a lock is a call that was never finished, and may have been paid.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.api import UserError
from bench.grading.grade import JudgeCase
from bench.progress import Advance, Progress
from bench.store.files import synced
from bench.store.folders import key_of
from bench.store.locks import Timeout, acquire

FOLDER = "verdicts"
PATIENCE = 20
"""Answers of a judge without a verdict, and none with one, after which it is given up."""
_FIELDS = {"key", "judge", "reported", "question", "gold", "answer", "verdict"}
"""Fields of a line besides its digest; lines of earlier versions have no digest and are paid for all the same."""


class NotKeptError(UserError):
    """The cache of verdicts can't be read or written; what a judge has just said is lost."""


class Verdicts:
    """The final verdicts of one judge; other judges have files of their own."""

    def __init__(self, cache: Path, judge: Mapping[str, object]) -> None:
        """Read what is there.

        Args:
            cache: verdicts are kept below it; nothing is made before the first one.
            judge: all that a verdict depends on besides the model that a server reports, and the answer itself.

        Raises:
            UserError: the file is there and can't be read.
        """
        self.judge = dict(judge)
        self.path = cache / FOLDER / f"{key_of(self.judge)[:16]}.jsonl"
        self.reported: str | None = None
        """Model that the server reported last; None for a judge without a server."""
        self.damaged = 0
        """Lines that can't be used, e.g. the last one of a process that was killed while writing it."""
        self.notes: list[str] = []
        """Notes that a user is told once."""
        self._known: dict[str, bool] = {}
        self._torn = False
        self._seen = 0
        """Bytes of the file that were read."""
        self._lock = threading.Lock()
        data = self._new_bytes()
        self._torn = bool(data) and not data.endswith(b"\n")
        for entry in self._entries(data):
            self.reported = entry["reported"]
        tail = data[data.rfind(b"\n") + 1 :]
        if tail and self._entry(tail) is None:  # another run may be writing it
            self._seen -= len(tail)
        if self.damaged:
            self.notes.append(f"{self.damaged} damaged lines of the cache of verdicts are not used")

    def refresh(self) -> None:
        """Read the lines that were written since; they may tell of which model the verdicts are, but not change it.

        Raises:
            UserError: the file is there and can't be read.
        """
        with self._lock:
            data = self._new_bytes()
            whole = data[: data.rfind(b"\n") + 1]  # somebody may be writing the last line
            self._seen -= len(data) - len(whole)
            for entry in self._entries(whole):
                self.reported = self.reported or entry["reported"]

    def _new_bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._seen)
                data = file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable("read", error) from error
        self._seen += len(data)
        return data

    def _entries(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The lines that are whole, which are known from now on."""
        for line in filter(None, data.split(b"\n")):
            entry = self._entry(line)
            if entry is None:
                self.damaged += 1
            else:
                self._known[entry["key"]] = entry["verdict"]
                yield entry

    def _entry(self, line: bytes) -> dict[str, Any] | None:
        """The line's fields, if they are whole: key and digest are made of the others, and show what was altered."""
        try:
            entry = json.loads(line)
            case = JudgeCase(entry["question"], entry["gold"], entry["answer"], tuple(entry.get("others", ())))
            whole = entry["key"] == self._key(case, entry["reported"]) and isinstance(entry["verdict"], bool)
            digest = entry.pop("digest", None)
            whole = whole and (entry.keys() == _FIELDS if digest is None else digest == key_of(entry))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return entry if whole else None

    def of_prompt(self, name: str) -> Verdicts:
        """The verdicts of the same judge, and of the model that its server reported last, on another prompt."""
        others = Verdicts(self.path.parents[1], {**self.judge, "prompt": name})
        others.reported = self.reported or others.reported
        return others

    def __len__(self) -> int:
        return len(self._known)

    def get(self, case: JudgeCase) -> bool | None:
        """The verdict of the model reported last; None where there is none yet."""
        return self._known.get(self._key(case, self.reported))

    def put(self, case: JudgeCase, verdict: bool, reported: str | None = None) -> None:  # noqa: FBT001
        """Keep a verdict; it is on the disk when this returns.

        Raises:
            UserError: it can't be written.
        """
        key = self._key(case, reported)
        fields = {"key": key, "judge": self.judge, "reported": reported, **case.fields(), "verdict": verdict}
        line = json.dumps({**fields, "digest": key_of(fields)}, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            try:
                self._append(b"\n" + line if self._torn else line)
            except OSError as error:
                self._torn = True
                raise self._unusable("written", error) from error
            self._torn = False
            self._known[key] = verdict

    @contextmanager
    def claimed(self, case: JudgeCase) -> Iterator[bool]:
        """Within the context no other run asks about an answer; gives False, and claims nothing, while one does.

        Raises:
            UserError: the lock can't be written.
        """
        path = self._claim(case)
        try:
            lock = acquire(path)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise self._unusable("written", error) from error
        finished = False
        try:
            yield True
            finished = True
        except UserError as error:
            finished = not isinstance(error, NotKeptError)
            raise
        finally:
            with suppress(OSError):
                if finished:
                    path.unlink()
            lock.release()

    def left_behind(self, cases: Sequence[JudgeCase]) -> int:
        """Number of these answers that a run was asking about when it was killed; each is counted once.

        Raises:
            UserError: a lock can't be written.
        """
        names = {path.name for path in self._claims.glob(f"{self.path.stem}-*")}
        count = 0
        for case in cases if names else ():
            if self._claim(case).name in names:
                with self.claimed(case) as free:
                    count += free
        return count

    @property
    def _claims(self) -> Path:
        return self.path.parent / "claims"

    def _claim(self, case: JudgeCase) -> Path:
        return self._claims / f"{self.path.stem}-{key_of(case.fields())[:16]}"

    def _append(self, data: bytes) -> None:
        """One write at the end of the file, so that lines of several processes never mix."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if written != len(data):
            raise OSError(None, "no space left for a whole line")
        if new:
            synced(self.path.parent)

    def _key(self, case: JudgeCase, reported: str | None) -> str:
        return key_of({"judge": self.judge, "reported": reported, **case.fields()})

    def _unusable(self, what: str, error: OSError) -> NotKeptError:
        return NotKeptError(
            f"The cache of verdicts could not be {what}: {error.strerror or error}. Free some disk space, or set"
            " CONFBENCH_CACHE to a folder that can be read and written."
        )


def missing(cases: Sequence[JudgeCase], verdicts: Verdicts) -> list[JudgeCase]:
    """Cases to ask about: each answer once, without the empty ones and those with a verdict."""
    return [a for a in dict.fromkeys(cases) if a.answer.strip() and verdicts.get(a) is None]


class Settling:
    """Takes verdicts as they come, and gives a judge up that decides nothing."""

    def __init__(self, times: Mapping[JudgeCase, int], decided: int, advance: Advance) -> None:
        """Begin.

        Args:
            times: how often each answer is there.
            decided: verdicts that were kept.
            advance: told of each verdict.
        """
        self._times = times
        self._decided = decided
        self._advance = advance
        self.answers = 0
        """Answers of the judge so far."""

    def answered(self, verdict: bool | None) -> None:  # noqa: FBT001
        """Count an answer of the judge.

        Raises:
            UserError: it has answered often enough without deciding anything.
        """
        self.answers += 1
        self._decided += verdict is not None
        if not self._decided and self.answers >= PATIENCE:
            raise self.useless()

    def settle(self, case: JudgeCase) -> None:
        """Count an answer that is done with, whether or not there is a verdict on it."""
        self._advance(self._times[case])

    def useless(self) -> UserError:
        """Error for a judge that decided nothing."""
        return UserError(
            f"The judge said neither yes nor no in {self.answers} answers; expected one of the two as its first word."
            " Name a model that follows instructions: --judge-model MODEL."
        )


def settled(
    cases: Sequence[JudgeCase],
    verdicts: Verdicts,
    what: str,
    progress: Progress,
    ask: Callable[[list[JudgeCase], Settling], None],
) -> list[bool | None]:
    """One verdict for each answer, asking only for those that are missing.

    Args:
        cases: the answers; an empty one is wrong without asking.
        verdicts: where verdicts are found; `ask` puts new ones there.
        what: name of this stage.
        progress: told of each verdict.
        ask: asks for the answers it is given and settles each, in any order.

    Raises:
        UserError: the judge decides nothing.
    """
    while verdicts.notes:
        progress.say(verdicts.notes.pop(0))
    todo = missing(cases, verdicts)
    times = Counter(cases)
    decided = sum(1 for a in times if a.answer.strip()) - len(todo)
    with progress.stage(what, len(cases)) as advance:
        advance(len(cases) - sum(times[a] for a in todo))
        settling = Settling(times, decided, advance)
        if todo:
            ask(todo, settling)
    found = [verdicts.get(a) if a.answer.strip() else False for a in cases]
    if found and all(verdict is None for verdict in found):
        raise settling.useless()
    return found
