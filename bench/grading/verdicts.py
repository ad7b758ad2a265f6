"""Verdicts between runs: one line of JSON each, appended and synced one by one, found by all that they depend on.

`<cache>/verdicts/<16 hex of the judge>.jsonl`; a line holds `key`, `judge`, `reported`, `question`, `gold`,
`answer`, `others` where several answers are right, `verdict` (true or false: what a judge could not decide is no
verdict and is asked again) and a `digest` of the others. While a run asks a judge behind a server it holds the claim on
that judge; other runs wait for it, and read what it wrote.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.api import UserError
from bench.grading.grade import JudgeCase
from bench.progress import Advance, Progress
from bench.store.files import synced
from bench.store.folders import key_of, sealed
from bench.store.locks import file_lock, judge_claim

FOLDER = "verdicts"
PATIENCE = 20
"""Answers of a judge without a verdict, and none with one, after which it is given up."""


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
        self.cache = cache
        self.judge = dict(judge)
        self.path = cache / FOLDER / f"{key_of(self.judge)[:16]}.jsonl"
        self.reported: str | None = None
        """Model that the server reported last; None for a judge without a server."""
        self.damaged = 0
        """Lines that can't be used, e.g. the last one of a process that was killed while writing it."""
        self._known: dict[str, bool] = {}
        self.refresh()
        self.notes = [f"{self.damaged} damaged lines of the cache of verdicts are not used"] if self.damaged else []
        """Notes that a user is told once."""

    def refresh(self) -> None:
        """Read the file; it may tell of which model the verdicts are, but not change it.

        Raises:
            UserError: the file is there and can't be read.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable("read", error) from error
        reported, self.damaged = None, 0
        for line in filter(None, lines):
            try:
                entry = json.loads(line)
                if entry != sealed(entry) or entry["judge"] != self.judge:
                    raise ValueError
                self._known[entry["key"]] = entry["verdict"]
                reported = entry["reported"]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self.damaged += 1
        self.reported = self.reported or reported

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
        line = json.dumps(sealed(fields)).encode() + b"\n"
        new = not self.path.exists()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+", buffering=0) as file:
                file.seek(max(0, file.tell() - 1))
                data = line if file.read() in {b"", b"\n"} else b"\n" + line  # ends a line that was cut
                if os.write(file.fileno(), data) != len(data):  # one write, so that lines of several never mix
                    raise OSError(None, "no space left for a whole line")
                os.fsync(file.fileno())
            if new:
                synced(self.path.parent)
        except OSError as error:
            raise self._unusable("written", error) from error
        self._known[key] = verdict

    @contextmanager
    def claimed(self, waiting: Callable[[str], None]) -> Iterator[bool]:
        """Within the context no other run asks this judge; gives whether the last one that did was killed meanwhile.

        Args:
            waiting: told once which process is waited for.

        Raises:
            UserError: the claim can't be written, or the file can't be read.
        """
        with ExitStack() as held:
            try:
                killed = held.enter_context(file_lock(judge_claim(self.cache, self.path.stem), waiting))
            except OSError as error:
                raise self._unusable("written", error) from error
            self.refresh()
            yield killed

    def _key(self, case: JudgeCase, reported: str | None) -> str:
        return key_of({"judge": self.judge, "reported": reported, **case.fields()})

    def _unusable(self, what: str, error: OSError) -> UserError:
        return UserError(
            f"The cache of verdicts could not be {what}: {error.strerror or error}. Free some disk space, or set"
            " CONFBENCH_CACHE to a folder that can be read and written. A verdict that came just now is asked again."
        )


def missing(cases: Sequence[JudgeCase], verdicts: Verdicts) -> list[JudgeCase]:
    """Cases to ask about: each answer once, without the empty ones and those with a verdict."""
    return [a for a in dict.fromkeys(cases) if a.answer.strip() and verdicts.get(a) is None]


@dataclass
class VerdictCollector:
    """Takes verdicts as they come, and gives a judge up that decides nothing."""

    times: Mapping[JudgeCase, int]
    """How often each answer is there."""
    decided: int
    """Verdicts so far, those that were kept included."""
    advance: Advance
    answers: int = 0
    """Answers of the judge so far."""

    def answered(self, verdict: bool | None) -> None:  # noqa: FBT001
        """Count an answer of the judge.

        Raises:
            UserError: it has answered often enough without deciding anything.
        """
        self.answers += 1
        self.decided += verdict is not None
        if not self.decided and self.answers >= PATIENCE:
            raise self.useless()

    def settle(self, case: JudgeCase) -> None:
        """Count an answer that is done with, whether or not there is a verdict on it."""
        self.advance(self.times[case])

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
    ask: Callable[[list[JudgeCase], VerdictCollector], None],
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
        settling = VerdictCollector(times, decided, advance)
        if todo:
            ask(todo, settling)
    found = [verdicts.get(a) if a.answer.strip() else False for a in cases]
    if found and all(verdict is None for verdict in found):
        raise settling.useless()
    return found
