"""Connection to a judge's server: one answer to one call within a time, or one sentence that says why not.

Redirects are not followed: questions, answers and keys go to the server that was named and to no other one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from bench.api import UserError
from bench.grading.address import KEY, Address
from bench.progress import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from bench.api.question import Message

_SILENT_TRIES = 2
"""Tries of a call to which no whole answer comes in time; a server that hangs once more is not waited for."""
_SENT = frozenset(
    ("accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host", "user-agent")
)
"""Headers for servers other than OpenAI's, which needn't know an organisation or a project from the environment."""

_NOT_JUDGED = frozenset({"content_filter", "context_length_exceeded"})
"""Refusals of one question, not of the whole run: no verdict."""

_KEY_REFUSED = ("refuses the key", f"Set {KEY} to one that it takes")
_LOST = ("has no such address or model", "Correct --judge-url (most end in /v1) or --judge-model")
_BUSY = ("turned the call away {tries}", "Wait, or see the account's limits and balance")
_MOVED = ("sends the call elsewhere, where questions and keys don't follow", "Name the address itself with --judge-url")
_FAILED = ("failed {tries}", "Wait, or see whether it is well")
_REFUSED = ("refused the call", "Correct --judge-model or --judge-url")
_BY_STATUS = {401: _KEY_REFUSED, 403: _KEY_REFUSED, 404: _LOST, 405: _LOST, 429: _BUSY}
"""Meaning of a server's status, and what to do."""
_BY_HUNDREDS = {3: _MOVED, 4: _REFUSED}
"""The same for all others of these hundreds; _FAILED for the rest."""

_LONGEST_REASON = 160
"""Characters of a server's own words in a message."""


class Answer(NamedTuple):
    """Answer of a server."""

    model: str | None
    """Model that it says it is; None where it doesn't say."""
    text: str


@dataclass(frozen=True)
class Limits:
    """Limits of a call."""

    retries: int
    """Further tries of a call that failed in a way that may pass."""
    timeout_s: float
    """Seconds for a whole answer, however it comes."""
    temperature: float
    max_tokens: int
    """Tokens of the answer."""

    @property
    def silent_tries(self) -> int:
        """Tries of a call to which no whole answer comes in time."""
        return min(_SILENT_TRIES, self.retries + 1)


class Connection:
    """The official client of one server, within limits."""

    def __init__(self, address: Address, model: str, limits: Limits) -> None:
        """Nothing is called yet.

        Args:
            address: the server.
            model: which of its models.
            limits: of each call.

        Raises:
            UserError: the key is missing, can't be sent, or would be sent in clear.
        """
        self.address = address
        self.model = model
        self.limits = limits
        self.client = AsyncOpenAI(
            api_key=address.key(),
            base_url=address.base,
            default_query=address.query,
            max_retries=limits.retries,
            timeout=2 * limits.timeout_s,  # of one read; `_Http` limits the whole
            http_client=_Http(address, limits),
        )

    async def answer(self, messages: Sequence[Message]) -> Answer | None:
        """The server's answer; None where it refuses this question.

        Raises:
            UserError: it gave none, or something else.
        """
        # a question mark stands for each half of a character, which nothing could send
        sent: list[Any] = [{"role": m.role, "content": m.content.encode(errors="replace").decode()} for m in messages]
        options: Any = {"temperature": self.limits.temperature, "max_tokens": self.limits.max_tokens}
        try:
            completion: Any = await self.client.chat.completions.create(model=self.model, messages=sent, **options)
        except openai.APIError as error:
            if error.code in _NOT_JUDGED:
                return None
            raise self._failure(error) from error
        except (ValueError, RecursionError) as error:  # what should be JSON can't be read
            raise self._stranger(str(error)) from error
        try:  # the client builds a completion of whatever came
            model, text = completion.model, completion.choices[0].message.content
            if isinstance(model, str | None) and isinstance(text, str | None):
                name = visible(" ".join((model or "").split()))  # without what would command a terminal
                return Answer(name[:_LONGEST_REASON] or None, text or "")
            came = str(completion)
        except (AttributeError, TypeError, LookupError):
            came = str(completion)
        except RecursionError as error:
            came = str(error)
        raise self._stranger(came)

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _failure(self, error: openai.APIError) -> UserError:
        """Error that tells what came, and what to do."""
        tries = f"in {self.limits.retries + 1} tries"
        if isinstance(error, openai.APITimeoutError):
            what = f"gave no whole answer within {self.limits.timeout_s:g} s in {self.limits.silent_tries} tries"
            return self._stopped(what, "See whether it is well")
        if not isinstance(error, openai.APIStatusError):
            why = self._short(str(error.__cause__ or error))
            return self._stopped(f"can't be reached {tries} ({why})", "Start it, or correct --judge-url")
        status = error.status_code
        what, advice = _BY_STATUS.get(status) or _BY_HUNDREDS.get(status // 100, _FAILED)
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
        line = visible(" ".join(self.address.hidden(text).split()))
        return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


class _Http(DefaultAsyncHttpxClient):
    """Sends a call to the one server, and gives back whole answers only."""

    def __init__(self, address: Address, limits: Limits) -> None:
        super().__init__(follow_redirects=False, trust_env=not address.local)  # no proxy between us and ourselves
        self._seconds = limits.timeout_s
        self._tries = limits.silent_tries
        self._sent = None if address.official else _SENT

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """See the base class; an answer that doesn't end in time is one that never came."""
        for name in set(request.headers) - self._sent if self._sent else ():
            del request.headers[name]
        for _ in range(self._tries):
            try:
                async with asyncio.timeout(self._seconds):
                    return await super().send(request, **options)  # reads the body, too
            except TimeoutError:
                continue
        raise openai.APITimeoutError(request=request)
