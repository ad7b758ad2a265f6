"""A judge behind an OpenAI-compatible server, asked by the official client; each verdict is paid for once."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.grading import prompt
from bench.grading.address import KEY, Address, public_model
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import Settle, Verdicts, missing, settled
from bench.progress import Progress
from bench.store.folders import key_of

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI
    from openai.types.chat import ChatCompletion

MODEL = "gpt-4o-mini"
"""The paper's judge (docs/methods.md §1.7)."""
_TEMPERATURE = 0.0
_MAX_TOKENS = 8
"""Most tokens of the judge's answer, of which only the first word is read."""
_ASKS = 4
"""Times that a judge which says neither yes nor no is asked (docs/methods.md §1.7: again at most three times)."""
_CONCURRENCY = 8
_RETRIES = 4
"""After 429, 5xx, a broken connection or no answer in time; the client waits as the server says, else 0.5 to 8 s."""
_TIMEOUT_S = 60.0

_CHARACTERS_PER_TOKEN = 4
"""Rule of thumb for English text."""

_NOT_JUDGED = frozenset({"content_filter", "context_length_exceeded"})
"""Refusals of one question, not of the whole run: no verdict."""

_KEY_REFUSED = ("refuses the key", f"Set {KEY} to one that it takes")
_LOST = ("has no such address or model", "Correct --judge-url (most end in /v1) or --judge-model")
_BUSY = ("turned the call away {tries}", "Wait, or see the account's limits and balance")
FAILED = ("failed {tries}", "Wait, or see whether it is well")
_REFUSED = ("refused the call", "Correct --judge-model or --judge-url")
_BY_STATUS = {401: _KEY_REFUSED, 403: _KEY_REFUSED, 404: _LOST, 405: _LOST, 429: _BUSY}
"""Meaning of a server's status, and what to do; FAILED from _STATUS_SERVER on, _REFUSED for the others."""
_STATUS_SERVER = 500

_LONGEST_REASON = 160
"""Characters of a server's own words in a message."""


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
            "temperature": _TEMPERATURE,
        }
        if address.query:  # may name another deployment, and may hold a secret
            fields["query"] = key_of(address.query)
        self.wording = prompt.GRADING
        self.kept = Verdicts(cache, fields)
        self._confirmed = False
        """Whether the server has reported in this run which model it is."""
        self._given = False
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
        todo = missing(cases, self.kept)
        if todo:
            self.address.key()
            progress.say(self._estimate(todo, what))
        try:
            found = settled(cases, self.kept, what, progress, partial(self._ask_all, cases, what, progress))
        except UserError as error:
            if not self.kept:
                raise
            kept = f"the {len(self.kept):,} verdicts that are kept"
            raise UserError(f"{error} The same command then goes on from {kept}.") from error
        self._given = self._given or any(a.answer.strip() for a in cases)
        return found

    def _estimate(self, todo: Sequence[JudgeCase], what: str) -> str:
        characters = sum(len(message.content) for case in todo for message in prompt.messages(case, self.wording))
        tokens = characters // _CHARACTERS_PER_TOKEN
        price = _PRICES.get(self.model) if self.address.official else None
        cost = "price unknown"
        if price is not None:
            dollars = (tokens * price.read + len(todo) * _MAX_TOKENS * price.written) / 1e6
            cost = f"about {dollars:.2f} USD at the prices of {price.date}"
        return f"{what}: {len(todo):,} calls to {self.name}, about {tokens:,} tokens to read, {cost}"

    # --- calls --------------------------------------------------------------------------------------------------------

    def _ask_all(
        self, cases: Sequence[JudgeCase], what: str, progress: Progress, todo: Sequence[JudgeCase], settle: Settle
    ) -> None:
        """The first calls alone, until the server has reported which model it is, and the rest at once."""

        async def calls() -> None:
            async with self._client() as client:
                before, waiting = self.kept.reported, list(todo)
                tried: set[JudgeCase] = set()
                while waiting and not self._confirmed:
                    tried.add(waiting[0])
                    settle(waiting[0], await self._ask(client, waiting.pop(0)))
                if before not in {None, self.kept.reported}:
                    waiting = [one for one in missing(cases, self.kept) if one not in tried]
                    progress.say(
                        f"{what}: the server's model was {public_model(before or '')}; its verdicts aren't used"
                    )
                    progress.say(self._estimate(waiting, what))
                await self._ask_at_once(client, waiting, settle)

        _finish(calls)

    async def _ask_at_once(self, client: AsyncOpenAI, waiting: Sequence[JudgeCase], settle: Settle) -> None:
        """Several calls at a time; after a failure those under way are still waited for, for they are paid."""
        rest = iter(waiting)
        failures: list[UserError] = []

        async def work() -> None:
            for one in rest:
                try:
                    settle(one, await self._ask(client, one))
                except UserError as error:
                    failures.append(error)
                if failures:
                    return

        await asyncio.gather(*(work() for _ in range(min(self.concurrency, len(waiting)))))
        if failures:
            raise failures[0]

    async def _ask(self, client: AsyncOpenAI, case: JudgeCase) -> bool | None:
        """One verdict, which is kept; None where the judge comes to none."""
        for _ in range(_ASKS):
            completion = await self._completion(client, case)
            if completion is None:
                return None
            reported = str(completion.model or self.model)
            verdict = prompt.parse(completion.choices[0].message.content or "")
            if verdict is not None:
                self.kept.put(case, verdict, reported)
            self._confirm(reported)
            if verdict is not None:
                return verdict
        return None

    def _confirm(self, reported: str) -> None:
        """The server's model must not change while a run uses its verdicts."""
        known = self.kept.reported
        if known not in {None, reported} and (self._confirmed or self._given):
            raise UserError(
                f"The judge changed during the run: the server said {public_model(known or '')!r}, and now"
                f" {public_model(reported)!r}. Name one of them with --judge-model and run again."
            )
        self.kept.reported = reported
        self._confirmed = True

    async def _completion(self, client: AsyncOpenAI, case: JudgeCase) -> ChatCompletion | None:
        """The server's answer; None where it refuses this question.

        Raises:
            UserError: it gave none, or something else.
        """
        import openai

        system, user = prompt.messages(case, self.wording)
        try:
            response: Any = await client.chat.completions.create(
                model=self.model,
                messages=[{"role": "system", "content": system.content}, {"role": "user", "content": user.content}],
                temperature=_TEMPERATURE,
                max_tokens=_MAX_TOKENS,
            )
        except openai.APIError as error:
            if error.code in _NOT_JUDGED:
                return None
            raise self._failure(error) from error
        except ValueError as error:  # what should be JSON can't be read
            raise self._stranger(str(error)) from error
        try:
            found = response.choices[0].message.content
            if found is None or isinstance(found, str):
                return response  # type: ignore[no-any-return]
        except (AttributeError, TypeError, IndexError):
            pass  # the client builds its objects from whatever comes
        raise self._stranger(str(response))

    def _client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            api_key=self.address.key(),
            base_url=self.address.base,
            default_query=self.address.query,
            max_retries=self.retries,
            timeout=self.timeout_s,
        )

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _failure(self, error: APIError) -> UserError:
        """Error that tells what came, and what to do."""
        import openai

        tries = f"in {self.retries + 1} tries"
        if isinstance(error, openai.APITimeoutError):
            return self._stopped(f"gave no answer within {self.timeout_s:g} s {tries}", "See whether it is well")
        if not isinstance(error, openai.APIStatusError):
            why = self._short(str(error.__cause__ or error))
            return self._stopped(f"can't be reached {tries} ({why})", "Start it, or correct --judge-url")
        status = error.status_code
        what, advice = _BY_STATUS.get(status, FAILED if status >= _STATUS_SERVER else _REFUSED)
        body = error.body if isinstance(error.body, dict) else {}
        came = f"{status}: {self._short(str(body.get('message') or error.response.text or 'no reason given'))}"
        return self._stopped(f"{what.format(tries=tries)} ({came})", advice)

    def _stranger(self, text: str) -> UserError:
        short = self._short(text)
        return self._stopped(f"answered no chat completion ({short})", "Correct --judge-url (most end in /v1)")

    def _stopped(self, what: str, advice: str) -> UserError:
        return UserError(f"The judge's server {self.address.public} {what}. {advice}.")

    def _short(self, text: str) -> str:
        """Text of a server as one short line without secrets."""
        line = " ".join(self.address.hidden(text).split())
        return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


def _finish(calls: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run to the end, in a thread of its own where a loop is running here already, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(calls())
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(calls())).result()
