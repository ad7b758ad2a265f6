"""`Client`: calls a model's server, from any thread, over the connection that judges use too."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bench.api import UserError
from bench.servers.address import MODEL, Address
from bench.servers.connection import Connection

RETRIES = 4
TIMEOUT_S = 600.0
"""Seconds without a byte after which a try has failed: a server sends nothing while it reads a prompt, and doesn't tell
that a request waits."""


class Client:
    """Synchronous calls to one server."""

    def __init__(self, url: str) -> None:
        """Create the client; nothing is called yet.

        Raises:
            UserError: the URL, or the key in the environment, can't be used.
        """
        self.address = Address.of(url, MODEL)
        self.connection = Connection(self.address, retries=RETRIES, timeout_s=TIMEOUT_S)
        self.root = self.address.base.rstrip("/").removesuffix("/v1")
        """The base URL without `/v1`, beside which servers have endpoints of their own."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(self._loop,), daemon=True).start()
        weakref.finalize(self, _close, self.connection, self._loop)

    @property
    def links(self) -> int:
        """Number of network connections so far: a server that was started anew is reached by a new one."""
        return len(self.connection.links)

    def request(self, path: str, body: Mapping[str, Any] | None = None, kind: Any = Any) -> Any:
        """Return the JSON that the server answers (see `Connection.request`).

        Args:
            path: below the base URL; with a leading slash, below the server's root.
            body: what is sent; None for a GET.
            kind: type of the answer.
        """
        url = self.root + path if path.startswith("/") else path
        return asyncio.run_coroutine_threadsafe(self.connection.request(url, body, kind), self._loop).result()

    def error(self, what: str, advice: str) -> UserError:
        """Return an error for the user about this server."""
        return self.connection.error(what, advice)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _close(connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
    """Close the network connections, then the event loop in its thread."""

    async def close() -> None:
        await connection.client.close()
        loop.stop()

    with suppress(Exception):  # the interpreter may be ending
        asyncio.run_coroutine_threadsafe(close(), loop)
