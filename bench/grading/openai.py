"""A judge behind an OpenAI-compatible server, asked by the official client; each verdict is paid for once.

Of several runs on one cache one asks at a time, and the others wait for what it keeps. Calls are made in a thread of
their own, for notebooks have a loop running already, and signals stop the main thread; a run that is stopped waits a
moment for the calls that are under way, for they are paid.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.grading import prompt
from bench.grading.address import Address, public_model
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCollector, Verdicts, missing, settled
from bench.progress import Progress
from bench.store.folders import key_of

if TYPE_CHECKING:
    from bench.grading.connection import Connection

MODEL = "gpt-4o-mini"
"""The paper's judge (docs/methods.md §1.7)."""
TEMPERATURE = 0.0
MAX_TOKENS = 8
"""Most tokens of the judge's answer, of which only the first word is read."""
_CONCURRENCY = 8
_GIVEN_UP = f"calls that were under way, at most {_CONCURRENCY}, may have been paid for and are made again"

_CHARACTERS_PER_TOKEN = 4
"""Rule of thumb for English text."""

_ASKS = 3
"""Times that a judge which says neither yes nor no is asked about one answer (docs/methods.md §1.7)."""
GRACE_S = 3.0
"""Seconds that calls under way have to end when the run is stopped."""

_PRICES: Mapping[str, tuple[float, float, str]] = MappingProxyType({"gpt-4o-mini": (0.15, 0.60, "2024-07-18")})
"""USD per million tokens read and written, and the date of the price list.

https://openai.com/index/gpt-4o-mini-advancing-cost-efficient-intelligence/
"""


def price_of(model: str, tokens: int, calls: int) -> tuple[float, str] | None:
    """Price of calls in USD and the date of the price list; None where no price is known.

    Args:
        model: of OpenAI's.
        tokens: that it reads in all calls.
        calls: number of calls; each writes as much as it may.
    """
    if model not in _PRICES:
        return None
    read, written, date = _PRICES[model]
    return (tokens * read + calls * MAX_TOKENS * written) / 1e6, date


class OpenAIJudge:
    """Asks a server whether answers mean what the gold answers mean."""

    concurrency = _CONCURRENCY
    """Calls at a time."""
    retries = 4
    """Further tries after 429, 5xx, a broken connection or silence; the client waits as it is told, else 0.5 to 8 s."""
    timeout_s = 60.0
    """Seconds of silence after which a try has failed."""

    def __init__(self, address: Address, model: str, cache: Path) -> None:
        """Nothing is called yet.

        Args:
            address: the server.
            model: which of its models.
            cache: verdicts are kept below it.

        Raises:
            UserError: no key where one is needed and no verdict is kept, or the verdicts can't be read.
        """
        self.address = address
        self.model = model
        fields = {
            "kind": "openai",
            "model": model,
            "url": address.public,
            "prompt": prompt.GRADING.id,
            "temperature": TEMPERATURE,
        }
        if address.query:  # may name another deployment, and may hold a secret
            fields["query"] = key_of(address.query)
        self.wording = prompt.GRADING
        self.kept = Verdicts(cache, fields)
        self.confirmed = False
        """Whether the server has reported in this run which model it is."""
        self.given = False
        """Whether this run has used verdicts of `kept.reported`."""
        if not self.kept:
            address.key()

    @property
    def name(self) -> str:
        """The model that the server says it is (before its first answer: the one that is asked for), where, and how."""
        model = public_model(self.kept.reported or self.model)
        return f"openai {model} at {self.address.public}, {self.wording.id}"

    def comparing(self) -> OpenAIJudge:
        """See `Judge.comparing`; the judge on the same server."""
        other = copy.copy(self)
        other.wording = prompt.COMPARING
        other.kept = Verdicts(self.kept.cache, {**self.kept.judge, "prompt": other.wording.id})
        other.kept.reported = self.kept.reported or other.kept.reported
        return other

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """See `Judge.verdicts`; what the server can't be asked about any more is found in the next run."""
        self.kept.refresh()
        with ExitStack() as held:
            if missing(cases, self.kept):
                self.address.key()
                waiting = f"{what}: waits for the verdicts of another run that asks the same judge"
                if held.enter_context(self.kept.claimed(lambda other: progress.say(f"{waiting} ({other})"))):
                    progress.say(f"{what}: the last run that asked this judge was killed; {_GIVEN_UP}")
            if todo := missing(cases, self.kept):
                progress.say(self._estimate(todo, what))
            try:
                found = settled(cases, self.kept, what, progress, partial(self._ask, cases, what, progress))
            except UserError as error:
                if not self.kept:
                    raise
                kept = f"the {len(self.kept):,} verdicts that are kept"
                raise UserError(f"{error} The same command then goes on from {kept}.") from error
        self.given = self.given or any(a.answer.strip() for a in cases)
        return found

    def _estimate(self, todo: Collection[JudgeCase], what: str) -> str:
        characters = sum(len(message.content) for case in todo for message in prompt.messages(case, self.wording))
        tokens = characters // _CHARACTERS_PER_TOKEN
        known = price_of(self.model, tokens, len(todo)) if self.address.official else None
        cost = "price unknown" if known is None else f"about {known[0]:.2f} USD at the prices of {known[1]}"
        return f"{what}: {len(todo):,} calls to {self.name}, about {tokens:,} tokens to read, {cost}"

    # --- calls --------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        cases: Sequence[JudgeCase],
        what: str,
        progress: Progress,
        todo: Sequence[JudgeCase],
        settling: VerdictCollector,
    ) -> None:
        """The first calls alone, until the server has reported which model it is, and the rest at once.

        After a failure no call is begun any more, but those under way are waited for, for they are paid.
        """
        from anyio.from_thread import start_blocking_portal

        from bench.grading.connection import Connection

        stop = threading.Event()

        async def calls() -> None:
            options = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
            connection = Connection(self.address, self.model, options, retries=self.retries, timeout_s=self.timeout_s)
            before, waiting = self.kept.reported, deque(todo)
            failures: list[UserError] = []

            async def work(*, alone: bool = False) -> None:
                while waiting and not (failures or stop.is_set() or (alone and self.confirmed)):
                    try:
                        await self._settle(waiting.popleft(), connection, settling, stop)
                    except UserError as error:
                        failures.append(error)

            async with connection.client:
                await work(alone=True)
                if before not in {None, self.kept.reported}:
                    tried = set(todo).difference(waiting)
                    waiting = deque(case for case in missing(cases, self.kept) if case not in tried)
                    told = public_model(before or "")
                    progress.say(f"{what}: the server's model was {told}; its verdicts aren't used")
                    progress.say(self._estimate(waiting, what))
                await asyncio.gather(*(work() for _ in range(self.concurrency)))
            if failures:
                raise failures[0]

        with start_blocking_portal() as portal:
            ended = portal.start_task_soon(calls)
            try:
                ended.result()
            except BaseException:  # Ctrl-C, too
                stop.set()
                if wait([ended], GRACE_S).not_done:
                    progress.say(f"{what}: the run is stopped; {_GIVEN_UP}")
                raise

    async def _settle(
        self, case: JudgeCase, connection: Connection, settling: VerdictCollector, stop: threading.Event
    ) -> None:
        """Ask for a verdict, which is kept before anything else happens."""
        for _ in range(_ASKS):
            answer = await connection.answer(prompt.messages(case, self.wording))
            if answer is None:
                settling.answered(None)
                break
            reported, text = answer[0] or self.model, answer[1]
            verdict = prompt.parse(text)
            if verdict is not None:
                self.kept.put(case, verdict, reported)
            self.confirm(reported)
            settling.answered(verdict)
            if verdict is not None or stop.is_set():
                break
        settling.settle(case)

    def confirm(self, reported: str) -> None:
        """Note which model the server says it is; it must not change while a run uses its verdicts.

        Raises:
            UserError: it is another one.
        """
        known = self.kept.reported
        if known not in {None, reported} and (self.confirmed or self.given):
            raise UserError(
                f"The judge changed during the run: the server said {public_model(known or '')!r}, and now"
                f" {public_model(reported)!r}. Name one of them with --judge-model and run again."
            )
        self.kept.reported = reported
        self.confirmed = True
