"""Connection to a judge's server: asks for a chat completion, and checks what comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import openai

from bench.api import UserError
from bench.progress import visible
from bench.servers.connection import MAX_REASON_LENGTH, Connection, is_too_long

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.api.question import Message
    from bench.servers.address import Address

_QUESTION_REFUSED = frozenset({"content_filter", "context_length_exceeded"})
"""Error codes by which a server refuses one question. This question gets no verdict, and the run goes on."""


class _ChatMessage(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage


class _Completion(msgspec.Struct):
    """Chat completion from a server, reduced to the fields that are read."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None


class JudgeConnection(Connection):
    """Connection to one model of a server that judges."""

    def __init__(
        self, address: Address, model: str, options: dict[str, Any], *, retries: int, timeout_s: float
    ) -> None:
        """Create the client (see `Connection`) for a model; `options` are parameters of each call."""
        super().__init__(address, retries=retries, timeout_s=timeout_s)
        self._params: dict[str, Any] = {"model": model, **options}

    async def answer(self, messages: Sequence[Message]) -> tuple[str | None, str] | None:
        """Call the model; return (model name that the server reports, or None; answer text).

        Return None if the server refuses the question.

        Raises:
            UserError: the call failed, or the response is no chat completion.
        """
        # lone surrogates can't be sent: each becomes a question mark
        body: list[Any] = [{"role": m.role, "content": m.content.encode(errors="replace").decode()} for m in messages]
        try:
            create = self.client.chat.completions.with_raw_response.create
            response = await self.send(lambda sent: create(**sent), {"messages": body, **self._params})
        except UserError as error:
            cause = error.__cause__
            if is_too_long(cause) or (isinstance(cause, openai.APIError) and cause.code in _QUESTION_REFUSED):
                return None
            raise
        try:
            completion = msgspec.convert(json.loads(response.text), _Completion)
        except (ValueError, RecursionError) as error:
            what = f"answered no chat completion ({self.one_line(response.text)})"
            raise self.error(what, "Correct {url} (most end in /v1)") from error
        name = visible(" ".join((completion.model or "").split()))  # without control characters
        return name[:MAX_REASON_LENGTH] or None, completion.choices[0].message.content or ""
