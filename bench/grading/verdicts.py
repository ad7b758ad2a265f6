"""Verdicts of judges, stored between runs in files with one verdict per line.

Each judge has a file `<cache>/verdicts/<16 hex digits of its digest>.jsonl`. A line is a JSON object with the keys
`key`, `judge`, `reported` (the model that the server named), `question`, `gold`, `answer` and `verdict` (true or
false). It has `others`, too, if several answers are right, and a `digest` of all these. Answers on which the judge
reached no verdict are not stored, and are judged again. A run that calls a judge's server holds the judge's lock. Other
runs wait for the lock, and then read the verdicts that this run wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.api import UserError
from bench.grading.grade import JudgeCase
from bench.progress import Advance, Progress
from bench.store.disk_cache import key_of
from bench.store.files import NO_SPACE, named_errors
from bench.store.lines import append_line, read_lines
from bench.store.locks import file_lock, judge_claim

FOLDER = "verdicts"
MAX_UNDECIDED = 20
"""If a judge has given this many answers and none has a verdict, the run ends with an error."""


class VerdictCache:
    """Stored verdicts of one judge, in a file of its own."""

    def __init__(self, cache: Path, judge: Mapping[str, object]) -> None:
        """Read the stored verdicts.

        Args:
            cache: the cache folder; nothing is created before the first verdict.
            judge: fields that identify the judge: model, prompt, settings. The key of a verdict is a digest of these
                fields, of the reported model and of the case.

        Raises:
            UserError: the file exists and can't be read.
        """
        self.cache = cache
        self.judge = dict(judge)
        self.path = cache / FOLDER / f"{key_of(self.judge)[:16]}.jsonl"
        self.reported: str | None = None
        """Name of the model that the server reported last, in this run or else for the last stored verdict; None
        before any report, and for a judge without a server."""
        self.damaged = 0
        """Number of invalid lines in the file, such as the last line of a process that was killed while writing."""
        self._by_key: dict[str, bool] = {}
        self.refresh()
        self.notes = [f"{self.damaged} damaged lines of the cache of verdicts are not used"] if self.damaged else []
        """Notes for the user about damaged lines of the file, shown once."""

    def refresh(self) -> None:
        """Read the file again; if `reported` is None, set it to the model that the file's last line names.

        Raises:
            UserError: the file exists and can't be read.
        """
        with _cache_errors("read"):
            lines = list(read_lines(self.path))
        reported, self.damaged = None, 0
        for entry in lines:
            if entry is None or entry.get("judge") != self.judge or not {"key", "verdict", "reported"} <= entry.keys():
                self.damaged += 1
                continue
            self._by_key[entry["key"]] = entry["verdict"]
            reported = entry["reported"]
        self.reported = self.reported or reported

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, case: JudgeCase) -> bool | None:
        """Return the stored verdict on a case by the model `reported`; None if there is none."""
        return self._by_key.get(self._key(case, self.reported))

    def put(self, case: JudgeCase, verdict: bool, reported: str | None = None) -> None:  # noqa: FBT001
        """Store a verdict and flush it to the disk.

        Raises:
            UserError: the file can't be written.
        """
        key = self._key(case, reported)
        fields = {"key": key, "judge": self.judge, "reported": reported, **case.fields(), "verdict": verdict}
        with _cache_errors("written"):
            append_line(self.path, fields)
        self._by_key[key] = verdict

    @contextmanager
    def locked(self, waiting: Callable[[str], None]) -> Iterator[bool]:
        """Hold the judge's lock in the context, so that only one run calls its server; read new verdicts.

        Yields True if the last run with the lock was killed before it released the lock.

        Args:
            waiting: function called once with a description of the process that holds the lock.

        Raises:
            UserError: the lock can't be written, or the file can't be read.
        """
        with ExitStack() as locks:
            with _cache_errors("written"):
                killed = locks.enter_context(file_lock(judge_claim(self.cache, self.path.stem), waiting))
            self.refresh()
            yield killed

    def _key(self, case: JudgeCase, reported: str | None) -> str:
        return key_of({"judge": self.judge, "reported": reported, **case.fields()})


def _cache_errors(what: str) -> AbstractContextManager[None]:
    advice = "A verdict that came just now is asked again."
    return named_errors(f"The cache of verdicts could not be {what}", f"{NO_SPACE} {advice}")


def cases_to_judge(cases: Sequence[JudgeCase], verdicts: VerdictCache) -> list[JudgeCase]:
    """Return the distinct cases that have a nonempty answer and no stored verdict."""
    return [case for case in dict.fromkeys(cases) if case.answer.strip() and verdicts.get(case) is None]


@dataclass
class VerdictCollector:
    """Counts verdicts as they come, and raises an error for a judge that reaches none."""

    times: Mapping[JudgeCase, int]
    """Case -> how often it occurs among the answers to judge."""
    decided: int
    """Number of verdicts so far, stored ones included."""
    advance: Advance
    answers: int = 0
    """Number of answers that the judge has given so far, with or without a verdict."""

    def count_answer(self, verdict: bool | None) -> None:  # noqa: FBT001
        """Count an answer of the judge.

        Raises:
            UserError: the judge has given `MAX_UNDECIDED` answers and no verdict.
        """
        self.answers += 1
        self.decided += verdict is not None
        if not self.decided and self.answers >= MAX_UNDECIDED:
            raise self.undecided_error()

    def finish(self, case: JudgeCase) -> None:
        """Advance the progress by all occurrences of a case that is finished, whether or not it got a verdict."""
        self.advance(self.times[case])

    def undecided_error(self) -> UserError:
        """Return the error for a judge that has answered, but never yes or no."""
        return UserError(
            f"The judge said neither yes nor no in {self.answers} answers; expected one of the two as its first word."
            " Name a model that follows instructions: --judge-model MODEL."
        )


def judge_all(
    cases: Sequence[JudgeCase],
    verdicts: VerdictCache,
    what: str,
    progress: Progress,
    ask: Callable[[list[JudgeCase], VerdictCollector], None],
) -> list[bool | None]:
    """Return one verdict for each case; the judge gets only cases without a stored verdict.

    Args:
        cases: the answers to judge; an empty answer is wrong without asking the judge.
        verdicts: the stored verdicts; `ask` adds new ones.
        what: name of this stage, for the progress bar.
        progress: advanced with each verdict.
        ask: function that calls the judge for the given cases, in any order, and counts its answers in the collector.

    Raises:
        UserError: the judge reaches no verdict at all.
    """
    while verdicts.notes:
        progress.say(verdicts.notes.pop(0))
    todo = cases_to_judge(cases, verdicts)
    times = Counter(cases)
    decided = sum(1 for case in times if case.answer.strip()) - len(todo)
    with progress.stage(what, len(cases)) as advance:
        advance(len(cases) - sum(times[case] for case in todo))
        collector = VerdictCollector(times, decided, advance)
        if todo:
            ask(todo, collector)
    results = [verdicts.get(case) if case.answer.strip() else False for case in cases]
    if results and all(verdict is None for verdict in results):
        raise collector.undecided_error()
    return results
