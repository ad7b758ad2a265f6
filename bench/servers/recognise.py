"""Recognise a model's server by what it answers, and open the model in its dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.api import UserError
from bench.servers.client import Client
from bench.servers.dialect import Dialect, passes
from bench.servers.llama_cpp import LlamaCpp
from bench.servers.openai_chat import OpenAIChat
from bench.servers.vllm import VLLM


def open_server(url: str, served: str | None, *, cached: bool) -> tuple[Client, Dialect]:
    """Return the client of a server, and its model in the server's dialect.

    Args:
        url: base URL of the server.
        served: name of the model; None for the only one.
        cached: whether the server may go on from what it has read of a prompt before.

    Raises:
        UserError: the server can't be reached or used; or the model isn't served.
    """
    client = Client(url)
    cards = _cards(client)
    names = [str(card.get("id")) for card in cards]
    listed = ", ".join(names[:10]) or "none"
    if served is None and len(names) != 1:
        raise client.error(f"serves {len(names)} models ({listed})", "Name one of them with {model}")
    if served is not None and served not in names:
        raise client.error(f"doesn't serve the model {served!r}; it serves {listed}", "Correct {model}")
    number = 0 if served is None else names.index(served)
    card = cards[number]
    if "meta" in card and card["meta"] is None:  # llama.cpp lists its model while it loads it
        _answer(client, "/props")  # is asked again, and then refused, until it is loaded
        card = _cards(client)[number]
    why: list[str] = []
    props = _answer(client, "/props", why)
    if "default_generation_settings" in props and isinstance(card.get("meta"), dict):
        try:
            return client, LlamaCpp(client, props, card, cached=cached)
        except (LookupError, TypeError, ValueError) as error:
            what = f"says otherwise of itself than llama.cpp ({client.connection.one_line(repr(error))})"
            raise client.error(what, "Update it") from error
    if "max_model_len" in _answer(client, "/tokenize", why, model=card.get("id"), prompt="x"):
        try:
            return client, VLLM(client, card, cached=cached)
        except (UserError, LookupError, TypeError, ValueError) as error:
            if passes(error):  # and would make another tier of it
                raise
            why.append(f"it has vLLM's endpoints, but not all that is needed of them ({error})")
    dialect = OpenAIChat(client, card, cached=cached)
    dialect.notes += why
    return client, dialect


def _answer(client: Client, path: str, notes: list[str] | None = None, **body: Any) -> Mapping[str, Any]:
    """Return what an endpoint answers that servers of one kind have; nothing if this one lacks it.

    Raises:
        UserError: it is busy after all tries, and there are no notes to say so.
    """
    try:
        answer = client.request(path, body or None)
    except UserError as error:
        if passes(error):
            if notes is None:
                raise
            notes.append(f"a server of another kind may give more, but was not recognised: {error}")
        return {}
    return answer if isinstance(answer, dict) else {}


def _cards(client: Client) -> list[dict[str, Any]]:
    """Return what the server says of each of its models."""
    reply = client.request("models")
    cards = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        what = f"answers no list of models ({client.connection.one_line(str(reply))})"
        raise client.error(what, "Correct {url} (most end in /v1)")
    return cards
