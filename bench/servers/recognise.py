"""Recognise a model's server by what it answers, and open the model in its dialect."""

from __future__ import annotations

from typing import Any

from bench.api import UserError
from bench.servers.client import Client
from bench.servers.llama_cpp import LlamaCpp
from bench.servers.readings import Dialect


def open_server(url: str, served: str | None, *, cached: bool) -> tuple[Client, Dialect]:
    """Return the client of a server, and its model in the server's dialect.

    Args:
        url: base URL of the server.
        served: name of the model; None for the only one.
        cached: whether the server may go on from what it has read of a prompt before.

    Raises:
        UserError: the server can't be reached or is of no known kind; or the model isn't served.
    """
    client = Client(url)
    cards = _cards(client)
    names = [str(card.get("id")) for card in cards]
    listed = ", ".join(names[:10]) or "none"
    if served is None and len(names) != 1:
        raise client.error(f"serves {len(names)} models ({listed})", "Name one of them with {model}")
    if served is not None and served not in names:
        raise client.error(f"doesn't serve the model {served!r}; it serves {listed}", "Correct {model}")
    card = cards[0 if served is None else names.index(served)]
    try:
        props = client.request("/props")
    except UserError:
        props = None
    if isinstance(props, dict) and "default_generation_settings" in props and isinstance(card.get("meta"), dict):
        return client, LlamaCpp(client, props, card, cached=cached)
    raise client.error("is none of llama.cpp (it has no /props)", "Start llama-server, which is the kind known here")


def _cards(client: Client) -> list[dict[str, Any]]:
    """Return what the server says of each of its models."""
    reply = client.request("models")
    cards = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        raise client.error(f"answers no list of models ({str(reply)[:80]})", "Correct {url} (most end in /v1)")
    return cards
