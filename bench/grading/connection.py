"""Connection to a judge's server by the official client, which waits, tries again and sends as it does everywhere.

Here are the limits that it is given, and the sentence that says why there is no answer. Redirects are not followed:
questions, answers and keys go to the server that was named and to no other one.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from bench.api import UserError
from bench.grading.address import KEY, Address
from bench.progress import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from bench.api.question import Message

_WHOLE_CALL = 2
"""A call ends after so many times the seconds that its tries may be silent: some servers send blanks and never end."""
_SENT = {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host"}
_SENT |= {"user-agent", "x-stainless-raw-response"}
"""Headers for servers other than OpenAI's, which needn't know an organisation or a project of the environment.

The last one is the client's sign to itself that its caller reads the answer.
"""

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


class _ChatMessage(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage


class _Completion(msgspec.Struct):
    """What is read of a chat completion."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None


class Connection:
    """The official client of one server, within limits."""

    def __init__(
        self, address: Address, model: str, options: dict[str, Any], *, retries: int, timeout_s: float
    ) -> None:
        """Nothing is called yet.

        Args:
            address: the server.
            model: which of its models.
            options: of each call.
            retries: further tries of a call that failed in a way that may pass.
            timeout_s: seconds of silence after which a try has failed.

        Raises:
            UserError: the key is missing, can't be sent, or would be sent in clear.
        """
        self._address = address
        self._call: dict[str, Any] = {"model": model, **options}
        self._tries = retries + 1
        self._timeout_s = timeout_s
        self.client = AsyncOpenAI(
            api_key=address.key(),
            base_url=address.base,
            default_query=address.query,
            max_retries=retries,
            timeout=timeout_s,
            http_client=DefaultAsyncHttpxClient(
                follow_redirects=False,
                trust_env=not address.local,  # no proxy between us and ourselves
                event_hooks={"request": [] if address.official else [_only_needed]},
            ),
        )

    async def answer(self, messages: Sequence[Message]) -> tuple[str | None, str] | None:
        """The model that the server says it is, if it does, and its answer; None where it refuses this question.

        Raises:
            UserError: it gave none, or something else.
        """
        # a question mark stands for each half of a character, which nothing could send
        sent: list[Any] = [{"role": m.role, "content": m.content.encode(errors="replace").decode()} for m in messages]
        longest_s = _WHOLE_CALL * self._tries * self._timeout_s
        try:
            async with asyncio.timeout(longest_s):
                response = await self.client.chat.completions.with_raw_response.create(messages=sent, **self._call)
        except TimeoutError as error:
            raise self._stopped(f"gave no whole answer within {longest_s:g} s", "See whether it is well") from error
        except openai.APIError as error:
            if error.code in _NOT_JUDGED:
                return None
            raise self._failure(error) from error
        try:
            read = msgspec.convert(json.loads(response.text), _Completion)
        except (ValueError, RecursionError) as error:
            what = f"answered no chat completion ({self._short(response.text)})"
            raise self._stopped(what, "Correct --judge-url (most end in /v1)") from error
        name = visible(" ".join((read.model or "").split()))  # without what would command a terminal
        return name[:_LONGEST_REASON] or None, read.choices[0].message.content or ""

    def _failure(self, error: openai.APIError) -> UserError:
        """Error that tells what came, and what to do."""
        tries = f"in {self._tries} tries"
        if isinstance(error, openai.APITimeoutError):
            what = f"gave no whole answer within {self._timeout_s:g} s {tries}"
            return self._stopped(what, "See whether it is well")
        if not isinstance(error, openai.APIStatusError):
            why = self._short(str(error.__cause__ or error))
            return self._stopped(f"can't be reached {tries} ({why})", "Start it, or correct --judge-url")
        status = error.status_code
        what, advice = _BY_STATUS.get(status) or _BY_HUNDREDS.get(status // 100, _FAILED)
        body = error.body if isinstance(error.body, dict) else {}
        came = f"{status}: {self._short(str(body.get('message') or error.response.text or 'no reason given'))}"
        return self._stopped(f"{what.format(tries=tries)} ({came})", advice)

    def _stopped(self, what: str, advice: str) -> UserError:
        return UserError(f"The judge's server {self._address.public} {what}. {advice}.")

    def _short(self, text: str) -> str:
        """Text of a server as one short line without secrets."""
        line = visible(" ".join(self._address.hidden(text).split()))
        return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


async def _only_needed(request: httpx2.Request) -> None:
    for name in set(request.headers) - _SENT:
        del request.headers[name]
