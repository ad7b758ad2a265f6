"""Connection to a judge's server by the official `openai` client: retries, time limits and error messages.

Redirects are not followed: questions, answers and keys go only to the server that the user named.
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

_CALL_TIMEOUT_FACTOR = 2
"""Time limit of a call with all its tries, as a multiple of the sum of the tries' timeouts. It ends calls to a server
that sends blanks forever, with which no single try times out."""
_ALLOWED_HEADERS = {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type"}
_ALLOWED_HEADERS |= {"host", "user-agent", "x-stainless-raw-response"}
"""Request headers that servers other than OpenAI's get: not the organisation or project that the environment names.

The client itself uses `x-stainless-raw-response`, to return the raw response.
"""

_QUESTION_REFUSED = frozenset({"content_filter", "context_length_exceeded"})
"""Error codes by which a server refuses one question. This question gets no verdict, and the run goes on."""

_KEY_REFUSED = ("refuses the key", f"Set {KEY} to one that it takes")
_UNKNOWN_ADDRESS = ("has no such address or model", "Correct --judge-url (most end in /v1) or --judge-model")
_BUSY = ("turned the call away {tries}", "Wait, or see the account's limits and balance")
_MOVED = ("sends the call elsewhere, where questions and keys don't follow", "Name the address itself with --judge-url")
_FAILED = ("failed {tries}", "Wait, or see whether it is well")
_REFUSED = ("refused the call", "Correct --judge-model or --judge-url")
_BY_STATUS = {401: _KEY_REFUSED, 403: _KEY_REFUSED, 404: _UNKNOWN_ADDRESS, 405: _UNKNOWN_ADDRESS, 429: _BUSY}
"""HTTP status -> two texts for the error message: what the server did, and what the user can do."""
_BY_CLASS = {3: _MOVED, 4: _REFUSED}
"""First digit of an HTTP status -> what the server did, and what the user can do; for a status that `_BY_STATUS` lacks.
If the digit is not here either, `_FAILED` is used."""

_MAX_REASON_LENGTH = 160
"""Largest length in characters of a server's text that an error message quotes."""


class _ChatMessage(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage


class _Completion(msgspec.Struct):
    """Chat completion from a server, reduced to the fields that are read."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None


class Connection:
    """The official client of one server and model, with retries and time limits."""

    def __init__(
        self, address: Address, model: str, options: dict[str, Any], *, retries: int, timeout_s: float
    ) -> None:
        """Create the client; nothing is called yet.

        Args:
            address: the server.
            model: name of the model.
            options: parameters of each call.
            retries: number of further tries of a call after a temporary failure.
            timeout_s: seconds without a byte from the server after which a try has failed.

        Raises:
            UserError: the key is missing, can't be sent, or would be sent unencrypted.
        """
        self._address = address
        self._params: dict[str, Any] = {"model": model, **options}
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
                trust_env=not address.is_loopback,  # no proxy for the loopback address
                event_hooks={"request": [] if address.is_openai else [_drop_other_headers]},
            ),
        )

    async def answer(self, messages: Sequence[Message]) -> tuple[str | None, str] | None:
        """Call the model; return (model name that the server reports, or None; answer text).

        Return None if the server refuses the question.

        Raises:
            UserError: the call failed, or the response is no chat completion.
        """
        # lone surrogates can't be sent: each becomes a question mark
        body: list[Any] = [{"role": m.role, "content": m.content.encode(errors="replace").decode()} for m in messages]
        limit_s = _CALL_TIMEOUT_FACTOR * self._tries * self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self.client.chat.completions.with_raw_response.create(messages=body, **self._params)
        except TimeoutError as error:
            raise self._error(f"gave no whole answer within {limit_s:g} s", "See whether it is well") from error
        except openai.APIError as error:
            if error.code in _QUESTION_REFUSED:
                return None
            raise self._to_user_error(error) from error
        try:
            completion = msgspec.convert(json.loads(response.text), _Completion)
        except (ValueError, RecursionError) as error:
            what = f"answered no chat completion ({self._one_line(response.text)})"
            raise self._error(what, "Correct --judge-url (most end in /v1)") from error
        name = visible(" ".join((completion.model or "").split()))  # without control characters
        return name[:_MAX_REASON_LENGTH] or None, completion.choices[0].message.content or ""

    def _to_user_error(self, error: openai.APIError) -> UserError:
        """Return the error for the user: what the server answered, and what to do."""
        tries = f"in {self._tries} tries"
        if isinstance(error, openai.APITimeoutError):
            what = f"gave no whole answer within {self._timeout_s:g} s {tries}"
            return self._error(what, "See whether it is well")
        if not isinstance(error, openai.APIStatusError):
            why = self._one_line(str(error.__cause__ or error))
            return self._error(f"can't be reached {tries} ({why})", "Start it, or correct --judge-url")
        status = error.status_code
        what, advice = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, _FAILED)
        body = error.body if isinstance(error.body, dict) else {}
        response = f"{status}: {self._one_line(str(body.get('message') or error.response.text or 'no reason given'))}"
        return self._error(f"{what.format(tries=tries)} ({response})", advice)

    def _error(self, what: str, advice: str) -> UserError:
        return UserError(f"The judge's server {self._address.public} {what}. {advice}.")

    def _one_line(self, text: str) -> str:
        """Return a server's text as one short line without secrets."""
        line = visible(" ".join(self._address.redact(text).split()))
        return line if len(line) <= _MAX_REASON_LENGTH else line[: _MAX_REASON_LENGTH - 1] + "…"


async def _drop_other_headers(request: httpx2.Request) -> None:
    for name in set(request.headers) - _ALLOWED_HEADERS:
        del request.headers[name]
