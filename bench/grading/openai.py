"""A judge behind an OpenAI-compatible server, asked by the official client; each verdict is paid for once.

Other runs on the same cache may need the same verdicts: an answer is asked about by one of them, and the others wait
for what it keeps. Calls are made in a thread of their own, for notebooks have a loop running already, and signals stop
the main thread; a run that is stopped waits a moment for the calls that are under way, for they are paid.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.grading import prompt
from bench.grading.address import Address, public_model
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import Settling, Verdicts, missing, settled
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
_RETRIES = 4
"""After 429, 5xx, a broken connection or no answer in time; the client waits as the server says, else 0.5 to 8 s."""
_TIMEOUT_S = 60.0

_CHARACTERS_PER_TOKEN = 4
"""Rule of thumb for English text."""

_ASKS = 3
"""Times that a judge which says neither yes nor no is asked about one answer (docs/methods.md §1.7)."""
_LOOK_AGAIN_S = 0.1
"""Seconds between two looks at an answer that another run asks about."""
_LONGEST_WAIT_S = 900.0
"""Seconds without anything new after which another run is not waited for any more: more than a call takes."""
GRACE_S = 3.0
"""Seconds that calls under way have to end when the run is stopped."""
_LAST_S = 0.5
"""Seconds that they have to notice that they are given up."""

_ELSEWHERE = "another run asks about some of these answers; its verdicts are waited for"
_LEFT = "were under way when a run was stopped; they may have been paid for, and are made again"


@dataclass(frozen=True)
class Price:
    """Price of a model of OpenAI's, in USD per million tokens."""

    read: float
    written: float
    date: str
    source: str


_PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "gpt-4o-mini": Price(
            0.15, 0.60, "2024-07-18", "https://openai.com/index/gpt-4o-mini-advancing-cost-efficient-intelligence/"
        ),
    }
)


def price_of(model: str, tokens: int, calls: int) -> tuple[float, str] | None:
    """Price of calls in USD and the date of the price list; None where no price is known.

    Args:
        model: of OpenAI's.
        tokens: that it reads in all calls.
        calls: number of calls; each writes as much as it may.
    """
    price = _PRICES.get(model)
    if price is None:
        return None
    return (tokens * price.read + calls * MAX_TOKENS * price.written) / 1e6, price.date


class OpenAI:
    """Asks a server whether answers mean what the gold answers mean."""

    def __init__(
        self,
        address: Address,
        model: str,
        cache: Path,
        *,
        concurrency: int = _CONCURRENCY,
        retries: int = _RETRIES,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Nothing is called yet.

        Args:
            address: the server.
            model: which of its models.
            cache: verdicts are kept below it.
            concurrency: calls at a time.
            retries: further tries of a call that failed in a way that may pass.
            timeout_s: seconds to wait for an answer.

        Raises:
            UserError: no key where one is needed and no verdict is kept, or the verdicts can't be read.
        """
        self.address = address
        self.model = model
        self.concurrency = concurrency
        self.retries = retries
        self.timeout_s = timeout_s
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

    def comparing(self) -> OpenAI:
        """See `Judge.comparing`; the judge on the same server."""
        other = copy.copy(self)
        other.wording = prompt.COMPARING
        other.kept = self.kept.of_prompt(other.wording.id)
        return other

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """See `Judge.verdicts`; what the server can't be asked about any more is found in the next run."""
        self.kept.refresh()
        todo = missing(cases, self.kept)
        if todo:
            self.address.key()
            progress.say(self._estimate(todo, what))
            if left := self.kept.left_behind(todo):
                progress.say(f"{what}: {left} calls {_LEFT}")
        try:
            found = settled(cases, self.kept, what, progress, partial(self._ask_all, cases, what, progress))
        except UserError as error:
            if not self.kept:
                raise
            kept = f"the {len(self.kept):,} verdicts that are kept"
            raise UserError(f"{error} The same command then goes on from {kept}.") from error
        self.given = self.given or any(a.answer.strip() for a in cases)
        return found

    def _estimate(self, todo: Sequence[JudgeCase], what: str) -> str:
        characters = sum(len(message.content) for case in todo for message in prompt.messages(case, self.wording))
        tokens = characters // _CHARACTERS_PER_TOKEN
        known = price_of(self.model, tokens, len(todo)) if self.address.official else None
        cost = "price unknown" if known is None else f"about {known[0]:.2f} USD at the prices of {known[1]}"
        return f"{what}: {len(todo):,} calls to {self.name}, about {tokens:,} tokens to read, {cost}"

    # --- calls --------------------------------------------------------------------------------------------------------

    def _ask_all(
        self, cases: Sequence[JudgeCase], what: str, progress: Progress, todo: Sequence[JudgeCase], settling: Settling
    ) -> None:
        """The first calls alone, until the server has reported which model it is, and the rest at once."""
        from bench.grading.connection import Connection, Limits

        async def calls(stop: threading.Event) -> None:
            connection = Connection(
                self.address, self.model, Limits(self.retries, self.timeout_s, TEMPERATURE, MAX_TOKENS)
            )
            async with connection.client:
                asking = _Asking(self, connection, settling, partial(progress.say, f"{what}: {_ELSEWHERE}"), stop)
                before = self.kept.reported
                waiting = await asking.ask(todo, workers=1, enough=lambda: self.confirmed)
                if before not in {None, self.kept.reported}:
                    tried = set(todo).difference(waiting)
                    waiting = [one for one in missing(cases, self.kept) if one not in tried]
                    progress.say(
                        f"{what}: the server's model was {public_model(before or '')}; its verdicts aren't used"
                    )
                    progress.say(self._estimate(waiting, what))
                await asking.ask(waiting, self.concurrency)

        _finish(calls)

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


@dataclass
class _Asking:
    """Asks about some answers, each once, whoever else needs its verdict."""

    judge: OpenAI
    connection: Connection
    settling: Settling
    elsewhere: Callable[[], None]
    """Says that another run asks about some of the answers; called once."""
    stop: threading.Event
    """Once it is set no other call is begun."""
    failures: list[UserError] = field(default_factory=list)
    told: bool = False
    news: float = field(default_factory=time.monotonic)
    """When something new came last."""

    async def ask(
        self, cases: Iterable[JudgeCase], workers: int, enough: Callable[[], bool] = lambda: False
    ) -> Sequence[JudgeCase]:
        """Ask until it is enough; returns what is left.

        After a failure the calls under way are still waited for, for they are paid.
        """
        waiting = deque(cases)
        await asyncio.gather(*(self._work(waiting, enough) for _ in range(min(workers, len(waiting)))))
        if self.failures:
            raise self.failures[0]
        return waiting

    async def _work(self, waiting: deque[JudgeCase], enough: Callable[[], bool]) -> None:
        while waiting and not (self.failures or self.stop.is_set() or enough()):
            case = waiting.popleft()
            try:
                with self.judge.kept.claimed(case) as free:
                    if free:
                        await self._settle(case)
                        self.news = time.monotonic()
                        continue
                waiting.append(case)
                if not self.told:
                    self.told = True
                    self.elsewhere()
                if time.monotonic() - self.news > _LONGEST_WAIT_S:
                    raise UserError(
                        "Another run asks the judge about the same answers, and nothing has come of it for"
                        f" {_LONGEST_WAIT_S / 60:.0f} minutes. End it if it hangs, and run the same command again."
                    )
            except UserError as error:
                self.failures.append(error)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _settle(self, case: JudgeCase) -> None:
        """Ask for a verdict unless another run has; it is kept before anything else happens."""
        judge = self.judge
        judge.kept.refresh()
        if judge.kept.get(case) is not None:
            judge.given = True
            self.settling.settle(case)
            return
        for _ in range(_ASKS):
            answer = await self.connection.answer(prompt.messages(case, judge.wording))
            if answer is None:
                self.settling.answered(None)
                break
            reported = answer.model or judge.model
            verdict = prompt.parse(answer.text)
            if verdict is not None:
                judge.kept.put(case, verdict, reported)
            judge.confirm(reported)
            self.settling.answered(verdict)
            if verdict is not None or self.stop.is_set():
                break
        self.settling.settle(case)


def _finish(calls: Callable[[threading.Event], Coroutine[Any, Any, None]]) -> None:
    """Run calls to the end; whatever stops this thread, e.g. Ctrl-C, goes on once the calls under way have ended."""
    stop, ended, begun = threading.Event(), Future[None](), Future[Callable[[], object]]()

    async def work() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel) if task else None)
        await calls(stop)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="calls", daemon=True).start()
    try:
        ended.result()
    except BaseException:
        stop.set()
        if wait([ended], GRACE_S).not_done:
            begun.result()()
            wait([ended], _LAST_S)
        raise
