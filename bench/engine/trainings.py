"""Adapter trainings on a Ray cluster: each is a Ray task with its own devices, outside the workers for shards."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.api.errors import first_line
from bench.engine.link import ABSENT, RayConnection
from bench.engine.pool import Failed

if TYPE_CHECKING:
    from bench.progress import Progress
    from bench.training.assignment import Assignment

_RETRIES = 3
"""Maximum number of retries of a training whose machine was lost; each resumes from the last checkpoint."""
_PATIENCE = 600.0
"""After the last machine with enough devices was lost, seconds to wait for another one."""
_POLL = 5.0


@dataclass
class _RemoteTraining:
    work: Assignment
    ref: Any
    finished: bool = False
    failure: str = ""
    """Error message for the user if the cluster has no machine with enough devices any more; else empty."""


@dataclass
class Trainings:
    """Starts the adapter trainings of one run on a Ray cluster, and waits for them."""

    link: RayConnection
    make_room: Callable[[], None]
    """Function that ends the workers that compute shards, so that their devices are free for a training."""
    _begun: dict[str, _RemoteTraining] = field(default_factory=dict, init=False)

    @property
    def on_cards(self) -> bool:
        """Whether trainings use GPUs; one of these may be the GPU of the run's own process."""
        return self.link.on_gpus

    def is_running(self) -> bool:
        """Return whether any training is running or waiting for devices."""
        running = [job for job in self._begun.values() if not job.finished]
        if running:
            self._poll(running, 0.0)
        return not all(job.finished for job in running)

    def begun(self, key: str) -> bool:
        """Return whether this run has started the training of the adapter with this store key."""
        return key in self._begun

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """Start the training of the adapter with this store key, unless this run has started it already.

        Args:
            key: key of the adapter in the store.
            work: the training.
            wait: whether to wait until the training has ended.

        Returns:
            Seconds of the training and notes for the user; None without `wait`.

        Raises:
            UserError: the cluster can't be reached, no machine has enough devices, the training failed with a message
                for the user, or its machine was lost too often.
            RuntimeError: the training failed with another error.
        """
        if key not in self._begun:
            self.link.connect()
            if not self.link.has_room(work.processes):
                raise UserError(_no_room(work, self.link))
            self.make_room()
            remote = self.link.remote(_carrier(), work.processes, max_retries=_RETRIES)
            self._begun[key] = _RemoteTraining(work, remote.remote(self.link.spec, pickle.dumps(work)))
        if not wait:
            return None
        import ray

        training = self._begun[key]
        self._wait([training])
        if training.failure:
            raise UserError(training.failure)
        try:
            answer = ray.get(training.ref)
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(str(error)) from None
        except ray.exceptions.RayError as error:
            raise UserError(
                f"The training of {work.method} was lost {1 + _RETRIES} times, each time with its machine"
                f" ({first_line(error)[:200]}). Its checkpoints are stored: run it again."
            ) from error
        if isinstance(answer, Failed) and not answer.expected:
            raise RuntimeError(answer.reason)
        if isinstance(answer, str | Failed):
            raise UserError(answer if isinstance(answer, str) else answer.reason)
        seconds, notes = answer
        return seconds, notes

    def finish(self, progress: Progress) -> None:
        """Wait until all adapter trainings have ended."""
        trainings = list(self._begun.values())
        if self.is_running():
            self.make_room()
        names = ", ".join(dict.fromkeys(job.work.method for job in trainings))
        with progress.stage(f"train {names}", sum(job.work.steps for job in trainings), unit="steps") as advance:
            self._wait(trainings, advance)

    def _wait(self, trainings: Sequence[_RemoteTraining], advance: Callable[[int], None] = lambda _: None) -> None:
        reported, last_with_room = 0, time.monotonic()
        while running := [job for job in trainings if not job.finished]:
            self._poll(running)
            steps = sum(job.work.steps if job.finished else job.work.steps_done(self.link.store) for job in trainings)
            advance(max(0, steps - reported))
            reported = max(steps, reported)
            without_room = [job for job in running if not job.finished and not self.link.has_room(job.work.processes)]
            if not without_room:
                last_with_room = time.monotonic()
            elif time.monotonic() - last_with_room > _PATIENCE:
                import ray

                for job in without_room:
                    job.finished, job.failure = True, _no_room(job.work, self.link)
                    ray.cancel(job.ref, force=True)

    def _poll(self, running: Sequence[_RemoteTraining], seconds: float = _POLL) -> None:
        """Wait up to `seconds` until any running training ends, and mark it as finished.

        Each call marks at most one training, even if several have ended.
        """
        import ray

        finished, _ = ray.wait([job.ref for job in running], num_returns=1, timeout=seconds)
        for job in running:
            job.finished = job.ref in finished


def _no_room(work: Assignment, link: RayConnection) -> str:
    needed = f"{work.processes} cards" if link.on_gpus else f"{link.resources(work.processes)['num_cpus']} processors"
    return (
        f"Training the adapter of {work.method}: expected a machine with {needed} in the cluster, found none. Add one,"
        " or have the run see fewer cards (CUDA_VISIBLE_DEVICES): it trains on as many as it sees."
    )


def _carrier() -> Callable[[bytes, bytes], Any]:
    """Return the function that a Ray task runs to train an adapter.

    It is defined inside this function, so that Ray pickles its code: a worker's machine may lack this package.
    """

    def train(spec: bytes, work: bytes) -> Any:
        try:
            from bench.engine.member import RemoteWorker

            member, training = RemoteWorker(pickle.loads(spec)), pickle.loads(work)  # noqa: S301 - from the run
        except Exception as error:  # noqa: BLE001 - another version may fail by any error
            return ABSENT.format(platform.node(), type(error).__name__, error)
        return member.train(training)

    return train
