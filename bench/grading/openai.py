"""A judge on an OpenAI-compatible server. Verdicts are stored, so that each call is paid for only once.

Only one run at a time calls a server. Other runs with the same cache wait, and then read its verdicts. An interrupted
run waits up to `GRACE_S` seconds for the calls that were already sent, since they are paid for. Calls run in a separate
thread, since notebooks already have a running event loop and signals interrupt the main thread.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.grading import prompt
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCache, VerdictCollector, cases_to_judge, judge_all
from bench.model.specs import public_model
from bench.progress import Progress
from bench.servers.address import Address
from bench.store.disk_cache import key_of

if TYPE_CHECKING:
    from bench.grading.connection import JudgeConnection

MODEL = "gpt-4o-mini"
"""Default model, the judge of arXiv:2505.21772 (docs/methods.md §1.7)."""
TEMPERATURE = 0.0
MAX_TOKENS = 8
"""Token limit of the judge's answer, of which only the first word is read."""
_CONCURRENCY = 8
_INTERRUPTED_CALLS = f"calls that were under way, at most {_CONCURRENCY}, may have been paid for and are made again"

_CHARACTERS_PER_TOKEN = 4
"""Average number of characters per token of English text, by which the tokens of calls are estimated."""

_MAX_ATTEMPTS = 3
"""Largest number of calls about one answer, if the judge says neither yes nor no (docs/methods.md §1.7)."""
GRACE_S = 3.0
"""Seconds that an interrupted run waits for calls that were already sent."""


class OpenAIJudge:
    """Judge that asks a server whether answers mean the same as the gold answers."""

    concurrency = _CONCURRENCY
    """Number of concurrent calls."""
    retries = 4
    """Number of further tries of a call after status 408, 409, 429 or 5xx, a broken connection or a timeout. Before
    each further try the client waits as long as the server says, or else 0.5 to 8 s."""
    timeout_s = 60.0
    """Seconds without a byte from the server after which a try has failed."""

    def __init__(self, address: Address, model: str, cache: Path) -> None:
        """Read the stored verdicts; nothing is called yet.

        Args:
            address: the server.
            model: name of the model.
            cache: the cache folder, for verdicts.

        Raises:
            UserError: no verdict is stored and the key is missing but required, can't be sent, or would be sent
                unencrypted; or the stored verdicts can't be read.
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
        if address.query:  # may select a deployment, and may hold a secret
            fields["query"] = key_of(address.query)
        self.wording = prompt.GRADING
        self.cached = VerdictCache(cache, fields)
        self.confirmed = False
        """Whether the server has reported its model in this run."""
        self.used_cached = False
        """Whether this run has used stored verdicts. The model that gave them is `cached.reported`."""
        if not self.cached:
            address.key()

    @property
    def name(self) -> str:
        """Name of the judge: its model, the server's public URL, and the prompt.

        The model is named as the server reports it; before the first call, as the last stored verdict names it, or else
        as it was requested.
        """
        model = public_model(self.cached.reported or self.model)
        return f"openai {model} at {self.address.public}, {self.wording.id}"

    def pairwise_judge(self) -> OpenAIJudge:
        """Return the judge that compares two answers (see `Judge.pairwise_judge`), on the same server and model."""
        other = copy.copy(self)
        other.wording = prompt.COMPARING
        other.cached = VerdictCache(self.cached.cache, {**self.cached.judge, "prompt": other.wording.id})
        other.cached.reported = self.cached.reported or other.cached.reported
        return other

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """Return one verdict for each case, in order; None where the judge reached none.

        Each verdict is stored at once, so that a run after a failure asks only for the missing ones. Arguments and
        errors as in `Judge.verdicts`.
        """
        self.cached.refresh()
        with ExitStack() as locks:
            if cases_to_judge(cases, self.cached):
                self.address.key()
                waiting = f"{what}: waits for the verdicts of another run that asks the same judge"
                if locks.enter_context(self.cached.locked(lambda other: progress.say(f"{waiting} ({other})"))):
                    progress.say(f"{what}: the last run that asked this judge was killed; {_INTERRUPTED_CALLS}")
            if todo := cases_to_judge(cases, self.cached):
                progress.say(self._estimate(todo, what))
            try:
                verdicts = judge_all(cases, self.cached, what, progress, partial(self._ask, cases, what, progress))
            except UserError as error:
                if not self.cached:
                    raise
                stored = f"the {len(self.cached):,} verdicts that are kept"
                raise UserError(f"{error} The same command then goes on from {stored}.") from error
        self.used_cached = self.used_cached or any(case.answer.strip() for case in cases)
        return verdicts

    def _estimate(self, todo: Collection[JudgeCase], what: str) -> str:
        characters = sum(len(message.content) for case in todo for message in prompt.messages(case, self.wording))
        tokens = characters // _CHARACTERS_PER_TOKEN
        return f"{what}: {len(todo):,} calls to {self.name}, about {tokens:,} tokens to read"

    # --- calls --------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        cases: Sequence[JudgeCase],
        what: str,
        progress: Progress,
        todo: Sequence[JudgeCase],
        collector: VerdictCollector,
    ) -> None:
        """Judge the cases in `todo`: one at a time until the server has reported its model, then concurrently.

        If the server then reports another model than that of the stored verdicts, these are not used: all of `cases` to
        which the reported model gave no verdict are judged. After a failure no further call is made, but the answers to
        calls already sent are awaited, since they are paid for.
        """
        from anyio.from_thread import start_blocking_portal

        from bench.grading.connection import JudgeConnection

        stop = threading.Event()

        async def calls() -> None:
            options = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
            connection = JudgeConnection(
                self.address, self.model, options, retries=self.retries, timeout_s=self.timeout_s
            )
            stored_model, queue = self.cached.reported, deque(todo)
            failures: list[UserError] = []

            async def work(*, until_confirmed: bool = False) -> None:
                while queue and not (failures or stop.is_set() or (until_confirmed and self.confirmed)):
                    try:
                        await self._request_verdict(queue.popleft(), connection, collector, stop)
                    except UserError as error:
                        failures.append(error)

            async with connection.client:
                await work(until_confirmed=True)
                if stored_model not in {None, self.cached.reported}:
                    tried = set(todo).difference(queue)
                    queue = deque(case for case in cases_to_judge(cases, self.cached) if case not in tried)
                    model = public_model(stored_model or "")
                    progress.say(f"{what}: the server's model was {model}; its verdicts aren't used")
                    progress.say(self._estimate(queue, what))
                await asyncio.gather(*(work() for _ in range(self.concurrency)))
            if failures:
                raise failures[0]

        with start_blocking_portal() as portal:
            future = portal.start_task_soon(calls)
            try:
                future.result()
            except BaseException:  # also Ctrl-C
                stop.set()
                if wait([future], GRACE_S).not_done:
                    progress.say(f"{what}: the run is stopped; {_INTERRUPTED_CALLS}")
                raise

    async def _request_verdict(
        self, case: JudgeCase, connection: JudgeConnection, collector: VerdictCollector, stop: threading.Event
    ) -> None:
        """Ask the server for the verdict on a case, and store it at once."""
        for _ in range(_MAX_ATTEMPTS):
            answer = await connection.answer(prompt.messages(case, self.wording))
            if answer is None:
                collector.count_answer(None)
                break
            reported, text = answer[0] or self.model, answer[1]
            verdict = prompt.parse(text)
            if verdict is not None:
                self.cached.put(case, verdict, reported)
            self.check_reported_model(reported)
            collector.count_answer(verdict)
            if verdict is not None or stop.is_set():
                break
        collector.finish(case)

    def check_reported_model(self, reported: str) -> None:
        """Record the name of the model that the server reports.

        Raises:
            UserError: an earlier call or a stored verdict of this run has another model name.
        """
        current = self.cached.reported
        if current not in {None, reported} and (self.confirmed or self.used_cached):
            raise UserError(
                f"The judge changed during the run: the server said {public_model(current or '')!r}, and now"
                f" {public_model(reported)!r}. Name one of them with --judge-model and run again."
            )
        self.cached.reported = reported
        self.confirmed = True
