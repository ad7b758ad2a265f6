"""The process of a worker on this machine: answers on a connection, and ends when the run's end of it is closed."""

from __future__ import annotations

import os
import queue
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from bench.engine.member import Member


def main() -> None:
    """Serve the run that started this process, until it is gone."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                received.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # in the middle of a shard: nobody wants it any more

    threading.Thread(target=receive, daemon=True).start()
    member = Member(received.get())
    connection.send(member.open())
    while True:
        task, wait = received.get()
        connection.send(member.do(task, wait=wait))
