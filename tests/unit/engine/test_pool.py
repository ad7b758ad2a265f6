"""Handing out: two tasks to each worker at most, nothing lost, nothing twice, and an end where there is no use."""

from __future__ import annotations

import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.api import UserError
from bench.engine import pool
from bench.engine.cluster import Cluster
from bench.engine.member import RemoteWorker
from bench.engine.pool import Event, Failed, Lost, Pool, Ready
from bench.signals.worker import TaskResult


@dataclass
class Imagined:
    """Workers that do one task at a time, in turn; `fate` says what becomes of one."""

    size: int
    fate: Callable[[int, Any], Event] = lambda _worker, task: TaskResult(f"key {task.number}")
    ready: Callable[[int], Event | None] = lambda _worker: Ready()
    hired: int = 0
    dismissed: int = 0
    closed: int = 0
    queues: dict[int, deque[Any]] = field(default_factory=dict)
    most: int = 0
    sent: list[tuple[int, int, bool]] = field(default_factory=list)

    def start_worker(self) -> int:
        self.hired += 1
        self.queues[self.hired] = deque([None])
        return self.hired

    def send(self, worker: int, task: Any, *, wait: bool) -> None:
        self.queues[worker].append(task)
        self.most = max(self.most, len(self.queues[worker]))
        self.sent.append((worker, task.number, wait))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        found: list[tuple[int, Event]] = []
        for worker, queue in list(self.queues.items()):
            if not queue:
                continue
            task = queue.popleft()
            event = self.ready(worker) if task is None else self.fate(worker, task)
            if event is None:
                queue.appendleft(None)
                continue
            found.append((worker, event))
            if isinstance(event, Lost):
                del self.queues[worker]
        return found

    def stop_workers(self) -> None:
        self.dismissed += 1
        self.queues.clear()

    def close(self) -> None:
        self.closed += 1


def tasks(n: int) -> Iterator[Any]:
    return (SimpleNamespace(number=i, kind=f"k{i}", split="rivers/test") for i in range(n))


def numbers(made: Any) -> list[int]:
    return [task.number for task, _ in made]


def test_tasks_are_done_once_two_a_worker() -> None:
    crew = Imagined(3)
    drawn: list[int] = []

    def drawing() -> Iterator[Any]:
        for task in tasks(20):
            drawn.append(task.number)
            yield task

    for at, (task, done) in enumerate(Pool(crew).work(drawing())):
        assert done.key == f"key {task.number}"
        assert len(drawn) <= at + 1 + 2 * 3  # prompts of a whole split would lie about otherwise
    assert sorted(number for _, number, _ in crew.sent) == list(range(20))
    assert crew.most == 2
    idle = Imagined(3)
    assert list(Pool(idle).work(tasks(0))) == []
    assert idle.hired == 0
    assert {worker for worker, _, _ in crew.sent[:3]} == {1, 2, 3}  # one to each before a second to any


def test_tasks_of_a_lost_worker_are_done_again() -> None:
    lost = iter([True])
    crew = Imagined(2, lambda w, t: Lost("gone") if w == 1 and t.number >= 2 and next(lost, False) else TaskResult("k"))
    made = numbers(Pool(crew).work(tasks(9)))
    assert sorted(made) == list(range(9))
    assert crew.hired == 3
    again = [number for number in range(9) if sum(n == number for _, n, _ in crew.sent) > 1]
    assert 1 <= len(again) <= 2


def test_task_that_costs_two_workers_ends_it() -> None:
    crew = Imagined(2, lambda _, t: Lost("gone") if t.number == 3 else TaskResult("k"))
    with pytest.raises(UserError, match=r"^Reading rivers/test, shard 4: two workers were lost \(gone\)\. Lower"):
        list(Pool(crew).work(tasks(9)))
    assert (crew.dismissed, crew.closed) == (1, 0)


def test_pool_ends_where_no_worker_is_left() -> None:
    crew = Imagined(2, ready=lambda _: Lost("no room"))
    with pytest.raises(UserError, match=r"No worker is left, the last one was lost \(no room\)"):
        list(Pool(crew).work(tasks(9)))
    assert crew.hired == 2 + 2 * 2


def test_workers_go_on_where_one_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Imagined(3, ready=lambda worker: Ready() if worker == 2 else None)
    assert sorted(numbers(Pool(crew).work(tasks(9)))) == list(range(9))
    monkeypatch.setattr(pool, "_PATIENCE", -1.0)
    with pytest.raises(UserError, match=r"--workers: none of 3 workers was there after"):
        list(Pool(Imagined(3, ready=lambda _: None)).work(tasks(9)))


def test_workers_are_waited_for_while_devices_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.05)
    crew, asked = Imagined(2), iter(range(9))
    crew.ready = lambda _: Ready() if next(asked, 9) == 9 else time.sleep(0.03)
    assert sorted(numbers(Pool(crew, devices_busy=lambda: True).work(tasks(4)))) == [0, 1, 2, 3]


def test_tasks_of_another_run_come_last() -> None:
    crew = Imagined(2)
    crew.fate = lambda _, t: TaskResult(is_claimed=True) if t.number == 0 and not crew.sent[-1][2] else TaskResult("k")
    assert numbers(Pool(crew).work(tasks(5)))[-1] == 0
    assert [wait for _, number, wait in crew.sent if number == 0] == [False, True]


@pytest.mark.parametrize(("expected", "raised"), [(True, UserError), (False, RuntimeError)])
def test_worker_that_fails_ends_it(expected: bool, raised: type[Exception]) -> None:
    crew = Imagined(2, lambda *_: Failed("because", expected=expected))
    with pytest.raises(raised, match=r"^because$"):
        list(Pool(crew).work(tasks(5)))
    assert (crew.dismissed, crew.closed) == (1, 0)


def test_worker_tells_unexpected_errors_with_traceback() -> None:
    failed = RemoteWorker(cast("Any", SimpleNamespace(build_worker=lambda: 1 / 0))).open()
    assert isinstance(failed, Failed)
    assert not failed.expected
    assert failed.reason.startswith(f"on {platform.node()}:\nTraceback (most recent call last):\n")
    assert failed.reason.endswith("ZeroDivisionError: division by zero\n")


def test_errors_of_ray_are_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class RayTaskError(Exception):
        pass

    def get(_: object) -> None:
        raise RayTaskError("an answer can't be unpickled")

    errors = SimpleNamespace(RayTaskError=RayTaskError, RayError=KeyError)
    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(wait=lambda refs, **_: (refs, []), get=get, exceptions=errors)
    )
    cluster = Cluster(cast("Any", None))
    cluster._pending[3] = deque(["call"])
    assert cluster.receive(1.0) == [(3, Failed("an answer can't be unpickled", expected=False))]


def test_work_broken_off_leaves_nothing_behind() -> None:
    crew = Imagined(2)
    engine = Pool(crew)
    working = engine.work(tasks(9))
    next(working)
    working.close()
    assert (crew.dismissed, crew.closed) == (1, 0)
    assert sorted(numbers(engine.work(tasks(4)))) == [0, 1, 2, 3]
