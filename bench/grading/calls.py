"""Calls to a server in a thread of their own: notebooks have a loop running already, and signals stop the main thread.

A run that is stopped waits a moment for the calls that are under way, for they are paid.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

GRACE_S = 3.0
"""Seconds that calls under way have to end when the run is stopped."""
_LAST_S = 0.5
"""Seconds that they have to notice that they are given up."""

Calls = Callable[[threading.Event], Coroutine[Any, Any, None]]
"""Makes calls; once the event is set, it begins no other one."""


def finish(calls: Calls) -> None:
    """Run to the end; whatever stops this thread, e.g. Ctrl-C, goes on once the calls under way have ended."""
    stop, ended, begun = threading.Event(), Future[None](), Future[Callable[[], object]]()

    async def work() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel) if task else None)
        await calls(stop)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="calls", daemon=True).start()
    try:
        ended.result()
    except BaseException:
        stop.set()
        if wait([ended], GRACE_S).not_done:
            begun.result()()
            wait([ended], _LAST_S)
        raise
