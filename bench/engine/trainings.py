"""Trainings of adapters on a Ray cluster: each a task with devices of its own, beside the workers that read."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.engine.link import ABSENT, Link, first_line
from bench.engine.pool import Failed

if TYPE_CHECKING:
    from bench.progress import Progress
    from bench.training.assignment import Assignment

_RETRIES = 3
"""Machines that a training may outlast: each goes on where the one before it was."""
_PATIENCE = 600.0
"""Seconds in which another machine comes for a training that was lost with the last one that has room for it."""
_POLL = 5.0


@dataclass
class _Begun:
    work: Assignment
    ref: Any
    over: bool = False
    given_up: str = ""
    """Why it is waited for no longer."""


@dataclass
class Trainings:
    """Trainings of one run."""

    link: Link
    make_room: Callable[[], None]
    """Ends the workers that read; when there is more to read, others have the devices that are left."""
    _begun: dict[str, _Begun] = field(default_factory=dict, init=False)

    @property
    def on_cards(self) -> bool:
        """Whether they may take the card on which the run's own process computes."""
        return self.link.cards

    def going_on(self) -> bool:
        """Whether one is going on, or waits for devices."""
        left = [each for each in self._begun.values() if not each.over]
        if left:
            self._look(left, 0.0)
        return not all(each.over for each in left)

    def begun(self, key: str) -> bool:
        """See `Elsewhere` of `bench.training.trainer`."""
        return key in self._begun

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """See `Elsewhere` of `bench.training.trainer`."""
        if key not in self._begun:
            self.link.begin()
            if not self.link.room(work.processes):
                raise UserError(_no_room(work, self.link))
            self.make_room()
            remote = self.link.remote(_carrier(), work.processes, max_retries=_RETRIES)
            self._begun[key] = _Begun(work, remote.remote(self.link.spec, pickle.dumps(work)))
        if not wait:
            return None
        import ray

        begun = self._begun[key]
        self._wait([begun])
        if begun.given_up:
            raise UserError(begun.given_up)
        try:
            answer = ray.get(begun.ref)
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(str(error)) from None
        except ray.exceptions.RayError as error:
            raise UserError(
                f"The training of {work.method} was lost {1 + _RETRIES} times, each time with its machine"
                f" ({first_line(error)}). Its checkpoints are stored: run it again."
            ) from error
        if isinstance(answer, Failed) and not answer.expected:
            raise RuntimeError(answer.reason)
        if isinstance(answer, str | Failed):
            raise UserError(answer if isinstance(answer, str) else answer.reason)
        seconds, notes = answer
        return seconds, notes

    def finish(self, progress: Progress) -> None:
        """Wait for all that were begun."""
        begun = list(self._begun.values())
        if self.going_on():
            self.make_room()
        names = ", ".join(dict.fromkeys(each.work.method for each in begun))
        with progress.stage(f"train {names}", sum(each.work.steps for each in begun), unit="steps") as advance:
            self._wait(begun, advance)

    def _wait(self, begun: Sequence[_Begun], advance: Callable[[int], None] = lambda _: None) -> None:
        told, housed = 0, time.monotonic()
        while left := [each for each in begun if not each.over]:
            self._look(left)
            taken = sum(each.work.steps if each.over else each.work.taken(self.link.store) for each in begun)
            advance(max(0, taken - told))
            told = max(taken, told)
            homeless = [each for each in left if not each.over and not self.link.room(each.work.processes)]
            if not homeless:
                housed = time.monotonic()
            elif time.monotonic() - housed > _PATIENCE:
                import ray

                for each in homeless:
                    each.over, each.given_up = True, _no_room(each.work, self.link)
                    ray.cancel(each.ref, force=True)

    def _look(self, left: Sequence[_Begun], seconds: float = _POLL) -> None:
        """Wait until one is over, and note which."""
        import ray

        over, _ = ray.wait([each.ref for each in left], num_returns=1, timeout=seconds)
        for each in left:
            each.over = each.ref in over


def _no_room(work: Assignment, link: Link) -> str:
    needs = f"{work.processes} cards" if link.cards else f"{link.needs(work.processes)['num_cpus']} processors"
    return (
        f"Training the adapter of {work.method}: expected a machine with {needs} in the cluster, found none. Add one,"
        " or have the run see fewer cards (CUDA_VISIBLE_DEVICES): it trains on as many as it sees."
    )


def _carrier() -> Callable[[bytes, bytes], Any]:
    """The task's function, made in here so that Ray carries it itself: the package may be missing where it goes."""

    def train(spec: bytes, work: bytes) -> Any:
        try:
            from bench.engine.member import Member

            member, training = Member(pickle.loads(spec)), pickle.loads(work)  # noqa: S301 - from the run
        except Exception as error:  # noqa: BLE001 - whatever another version is like
            return ABSENT.format(platform.node(), type(error).__name__, error)
        return member.train(training)

    return train
