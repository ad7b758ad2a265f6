"""Connection to a server by the official `openai` client: retries, time limits and error messages.

Redirects are not followed: questions, answers and keys go only to the server that the user named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from bench.api import UserError
from bench.progress import visible
from bench.servers.address import JUDGE, KEY, SECRET_MIN_LENGTH, Address

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
_CALL_TIMEOUT_FACTOR = 2
"""Time limit of a call with all its tries, as a multiple of the sum of the tries' timeouts. It ends calls to a server
that sends blanks forever, with which no single try times out."""
_LONGEST_WAIT_S = 120
"""If a server asks for a longer wait, the client tries no more."""
_ALLOWED_HEADERS = {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type"}
_ALLOWED_HEADERS |= {"host", "user-agent", "x-stainless-raw-response"}
"""Request headers that servers other than OpenAI's get: not the organisation or project that the environment names.

The client itself uses `x-stainless-raw-response`, to return the raw response.
"""

_KEY_REFUSED = ("refuses the key", f"Set {KEY} to one that it takes")
_UNKNOWN_ADDRESS = ("has no such address or model", "Correct {url} (most end in /v1) or {model}")
_BUSY = ("turned the call away {tries}", "Wait, or see the account's limits and balance")
_CONTEXT = "maximum context length"
"""What vLLM and OpenAI say of a prompt that is too long."""
_TOO_LONG = "Start the server with the context that it had, or a larger one"
_LIMIT, _NEWER_LIMIT = "max_tokens", "max_completion_tokens"
"""Names of the most tokens of an answer; newer models of OpenAI refuse the first."""
_INSTEAD = f"Use '{_NEWER_LIMIT}' instead"
"""How they do; vLLM names both where a limit is too large."""
_MOVED = ("sends the call elsewhere, where questions and keys don't follow", "Name the address itself with {url}")
_FAILED = ("failed {tries}", "Wait, or see whether it is well")
_REFUSED = ("refused the call", "Correct {model} or {url}")
_BY_STATUS = {401: _KEY_REFUSED, 403: _KEY_REFUSED, 404: _UNKNOWN_ADDRESS, 405: _UNKNOWN_ADDRESS, 429: _BUSY}
"""HTTP status -> two texts for the error message: what the server did, and what the user can do."""
_BY_CLASS = {3: _MOVED, 4: _REFUSED}
"""First digit of an HTTP status -> what the server did, and what the user can do; for a status that `_BY_STATUS` lacks.
If the digit is not here either, `_FAILED` is used."""

MAX_REASON_LENGTH = 160
"""Largest length in characters of a server's text that an error message quotes."""


class Connection:
    """The official client of one server, with retries and time limits."""

    def __init__(self, address: Address, *, retries: int, timeout_s: float) -> None:
        """Create the client; nothing is called yet.

        Args:
            address: the server.
            retries: number of further tries of a call after a temporary failure.
            timeout_s: seconds without a byte from the server after which a try has failed.

        Raises:
            UserError: the key is missing, can't be sent, or would be sent unencrypted.
        """
        self.address = address
        self.links: list[object] = []
        """The network connections that gave answers; kept, so that none is taken for another one."""
        self._tries, self._limit = retries + 1, _LIMIT
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
                event_hooks={
                    "request": [] if address.is_openai else [_drop_other_headers],
                    "response": [] if address.words is JUDGE else [_fail_at_once, self._note_link],
                },
            ),
        )

    async def _note_link(self, response: httpx2.Response) -> None:
        link = response.extensions.get("network_stream")
        if not any(link is known for known in self.links):
            self.links.append(link)

    async def request(self, path: str, body: Mapping[str, Any] | None = None, kind: Any = Any) -> Any:
        """Return the JSON that the server answers; the request is a POST with a body, or a GET without one.

        Args:
            path: path below the base URL, or a whole URL.
            body: what is sent as JSON.
            kind: type of the answer.

        Raises:
            UserError: the call failed, or the answer is no JSON, or of another type.
        """
        import httpx2
        import msgspec

        if body is None:
            reply = await self.call(self.client.get(path, cast_to=httpx2.Response))
        else:
            reply = await self.send(lambda sent: self.client.post(path, body=sent, cast_to=httpx2.Response), body)
        try:
            return msgspec.json.decode(reply.content, type=kind)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors; NaN is no JSON
            why = f"{error}: {self.one_line(reply.text[:1000])}"
            raise self.error(
                f"answered {path.rpartition('/')[2]} otherwise than expected ({why})", "Correct {url} (most end in /v1)"
            ) from error

    async def send(self, post: Callable[[dict[str, Any]], Awaitable[T]], body: Mapping[str, Any]) -> T:
        """Return the result of a call with a body, whose `max_tokens` gets the name that the server takes.

        Args:
            post: makes the call of a body.
            body: what is sent as JSON.

        Raises:
            UserError: the call failed; its cause is the client's error.
        """
        sent = {self._limit if name == _LIMIT else name: value for name, value in body.items()}
        try:
            return await self.call(post(sent))
        except UserError as error:  # another call may have been refused meanwhile: what counts is what this one sent
            if _LIMIT not in sent or _INSTEAD not in str(error.__cause__):
                raise
        self._limit = _NEWER_LIMIT
        return await self.send(post, body)

    async def call(self, call: Awaitable[T]) -> T:
        """Return the result of a call of the client.

        Raises:
            UserError: the call failed; its cause is the client's error.
        """
        limit_s = _CALL_TIMEOUT_FACTOR * self._tries * self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await call
        except TimeoutError as error:
            raise self.error(f"gave no whole answer within {limit_s:g} s", "See whether it is well") from error
        except openai.APIError as error:
            raise self._to_user_error(error) from error

    def _to_user_error(self, error: openai.APIError) -> UserError:
        """Return the error for the user: what the server answered, and what to do."""
        tries = f"in {self._tries} tries"
        if isinstance(error, openai.APITimeoutError):
            what = f"gave no whole answer within {self._timeout_s:g} s {tries}"
            return self.error(what, "See whether it is well")
        if not isinstance(error, openai.APIStatusError):
            why = self.one_line(str(error.__cause__ or error))
            return self.error(f"can't be reached {tries} ({why})", "Start it, or correct {url}")
        status = error.status_code
        what, advice = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, _FAILED)
        body = error.body if isinstance(error.body, dict) else {}
        advice = _TOO_LONG if is_too_long(error) else advice
        headers, reason = error.response.headers, body.get("message") or error.response.text or "no reason given"
        wait = 0
        with suppress(ValueError, OverflowError):  # a date is no number
            wait = int(float(headers.get("retry-after", "")))
        tries = "" if headers.get("x-should-retry") == "false" or wait > _LONGEST_WAIT_S else tries
        response = f"{status}{f', again in {wait} s' if wait else ''}: {self.one_line(str(reason))}"
        return self.error(f"{what.format(tries=tries).rstrip()} ({response})", advice)

    def error(self, what: str, advice: str) -> UserError:
        """Return an error for the user; `{url}` and `{model}` in the advice stand for the options' names."""
        words, what = self.address.words, self.address.redact(what, least=SECRET_MIN_LENGTH)
        return UserError(
            f"{words.server} {self.address.public} {what}. {advice.format(url=words.url, model=words.model)}."
        )

    def one_line(self, text: str) -> str:
        """Return a server's text as one short line without secrets."""
        line = visible(" ".join(self.address.redact(text).split()))
        return line if len(line) <= MAX_REASON_LENGTH else line[: MAX_REASON_LENGTH - 1] + "…"


def is_too_long(error: BaseException | None) -> bool:
    """Return whether a server refused a prompt since it is longer than its context."""
    body = error.body if isinstance(error, openai.APIStatusError) and isinstance(error.body, dict) else {}
    return body.get("type") == "exceed_context_size_error" or _CONTEXT in str(body.get("message"))


async def _fail_at_once(response: httpx2.Response) -> None:
    """Have the client try no more after status 500, by which model servers refuse, e.g., a conversation."""
    if response.status_code == 500:
        response.headers["x-should-retry"] = "false"


async def _drop_other_headers(request: httpx2.Request) -> None:
    for name in set(request.headers) - _ALLOWED_HEADERS:
        del request.headers[name]
