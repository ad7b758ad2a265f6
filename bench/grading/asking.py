"""Asking about answers, each once, whoever else needs its verdict: other runs on the same cache may ask, too."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from bench.api import UserError
from bench.grading import prompt
from bench.grading.connection import Connection
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import Settling, Verdicts

_ASKS = 3
"""Times that a judge which says neither yes nor no is asked about one answer (docs/methods.md §1.7)."""
_LOOK_AGAIN_S = 0.1
"""Seconds between two looks at an answer that another run asks about."""
_LONGEST_WAIT_S = 900.0
"""Seconds without anything new after which another run is not waited for any more: more than a call takes."""


class Asked(Protocol):
    """Judge behind a server, as far as asking it needs."""

    kept: Verdicts
    model: str
    wording: prompt.Wording
    concurrency: int
    given: bool
    """Whether this run has used verdicts of `kept.reported`."""
    confirmed: bool
    """Whether the server has said which model it is."""

    def confirm(self, reported: str) -> None:
        """Take note of the model that the server says it is."""


class Asking:
    """Asks about some answers, each once, whoever else needs them."""

    def __init__(
        self,
        judge: Asked,
        connection: Connection,
        settling: Settling,
        elsewhere: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        """Begin.

        Args:
            judge: whose verdicts are kept.
            connection: to its server.
            settling: takes what comes.
            elsewhere: says that another run asks about some of the answers; called once.
            stop: once it is set no other call is begun.
        """
        self.judge = judge
        self.kept = judge.kept
        self.connection = connection
        self.settling = settling
        self.stop = stop
        self.failures: list[UserError] = []
        self._elsewhere = elsewhere
        self._told = False
        self._news = time.monotonic()

    async def until_confirmed(self, todo: Sequence[JudgeCase]) -> tuple[list[JudgeCase], set[JudgeCase]]:
        """Ask until the server has reported which model it is; returns what is left, and what is done with."""
        waiting = deque(todo)
        await self._work(waiting, lambda: self.judge.confirmed)
        self._raise()
        return list(waiting), set(todo).difference(waiting)

    async def at_once(self, todo: Sequence[JudgeCase]) -> None:
        """Several calls at a time; after a failure those under way are still waited for, for they are paid."""
        waiting = deque(todo)
        workers = min(self.judge.concurrency, len(waiting))
        await asyncio.gather(*(self._work(waiting, lambda: False) for _ in range(workers)))
        self._raise()

    def _raise(self) -> None:
        if self.failures:
            raise self.failures[0]

    async def _work(self, waiting: deque[JudgeCase], enough: Callable[[], bool]) -> None:
        while waiting and not (self.failures or self.stop.is_set() or enough()):
            one = waiting.popleft()
            try:
                if await self._settled(one):
                    self._news = time.monotonic()
                    continue
                waiting.append(one)
                self._be_patient()
            except UserError as error:
                self.failures.append(error)
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _be_patient(self) -> None:
        """Say once that another run asks.

        Raises:
            UserError: nothing has come of that for long.
        """
        if not self._told:
            self._told = True
            self._elsewhere()
        if time.monotonic() - self._news > _LONGEST_WAIT_S:
            raise UserError(
                "Another run asks the judge about the same answers, and nothing has come of it for"
                f" {_LONGEST_WAIT_S / 60:.0f} minutes. End it if it hangs, and run the same command again."
            )

    async def _settled(self, one: JudgeCase) -> bool:
        """Ask about an answer unless another run asks or has asked; returns whether it is done with."""
        with self.kept.claimed(one) as free:
            if not free:
                return False
            self.kept.refresh()
            if self.kept.get(one) is None:
                await self._ask(one)
            else:
                self.judge.given = True
        self.settling.settle(one)
        return True

    async def _ask(self, case: JudgeCase) -> None:
        """Ask for one verdict, which is kept before anything else happens."""
        for _ in range(_ASKS):
            answer = await self.connection.answer(prompt.messages(case, self.judge.wording))
            if answer is None:
                self.settling.answered(None)
                return
            reported = answer.model or self.judge.model
            verdict = prompt.parse(answer.text)
            if verdict is not None:
                self.kept.put(case, verdict, reported)
            self.judge.confirm(reported)
            self.settling.answered(verdict)
            if verdict is not None or self.stop.is_set():
                return
