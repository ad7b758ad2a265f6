"""Build the engine of a run (`--engine`): what computes shards and trains adapters, here or on a Ray cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.engine.cluster import Cluster
from bench.engine.link import RayConnection, threads_per_worker
from bench.engine.local_processes import Processes
from bench.engine.pool import Pool
from bench.engine.trainings import Trainings
from bench.signals.worker import WorkerSpec

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.store.disk_cache import Store

LOCAL, RAY = "local", "ray"


@dataclass(frozen=True)
class EngineOptions:
    """The user's options for the engine, i.e. for where shards are computed and adapters are trained."""

    engine: str = LOCAL
    workers: int | None = None
    """Number of workers; None for this process alone (`local`), or one for each device of the cluster (`ray`)."""
    address: str | None = None
    """Address of a Ray cluster; None for $RAY_ADDRESS, or a cluster that is started on this machine."""
    split: bool = False
    """Whether the model is split over several cards."""

    def __post_init__(self) -> None:
        """Check that the options fit together.

        Raises:
            UserError: options conflict, or the package ray is missing.
        """
        if self.engine not in {LOCAL, RAY}:
            raise UserError(f"--engine {self.engine}: expected {LOCAL} or {RAY}.")
        if self.engine == RAY and find_spec("ray") is None:
            raise UserError("--engine ray: expected the package ray, found none; pip install 'confbench[ray]'.")
        if self.split and (self.engine == RAY or self.workers is not None):
            raise UserError(
                "--devices: expected neither --workers nor --engine ray, since one process reads a model that is split"
                " over cards; leave them out, or give each worker a card that has room for the model."
            )
        if self.engine == LOCAL and self.address is not None:
            raise UserError("--address: expected --engine ray as well; --engine local stays on this machine.")
        if (self.address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://") and self.engine == RAY:
            raise UserError(
                "--address ray://…: expected a run on a machine of the cluster, got the address for programs outside of"
                " it; start bench there, with --address auto."
            )


@dataclass(frozen=True)
class Engines:
    """Where a run computes its shards and trains its adapters."""

    readers: Pool | None = None
    """Workers that compute shards; None if the run's own process does."""
    trainings: Trainings | None = None
    """Starts adapter trainings on a Ray cluster; None if adapters are trained on this machine."""


def build_engines(request: EngineOptions, lm: LanguageModel, store: Store) -> Engines:
    """Build what computes shards and trains adapters, as the options request; workers start when there is work.

    Raises:
        UserError: this machine has fewer cards than the requested workers; or several workers are requested, and the
            device is neither `cpu` nor `cuda` but, for example, one card (`cuda:0`) or `mps`.
    """
    if request.engine == RAY:
        link = RayConnection(lm, store, request.workers, request.address)
        readers = Pool(Cluster(link))
        trainings = Trainings(link, readers.stop_workers)
        readers.devices_busy = trainings.is_running
        return Engines(readers, trainings)
    if request.workers is None:
        return Engines()
    device, workers = lm.device, request.workers
    if device not in {"cpu", "cuda"} and workers > 1:
        raise UserError(f"--workers {workers}: expected --device cuda for all cards, or cpu; got {device}.")
    devices = [device] * workers
    if device == "cuda":
        import torch

        if workers > (cards := torch.cuda.device_count()):
            raise UserError(f"--workers {workers}: this machine has {cards} cards, and each worker needs one.")
        devices = [f"cuda:{number}" for number in range(workers)]
    spec = WorkerSpec.of(lm, store, threads_per_worker((os.cpu_count() or 1) // workers))
    return Engines(Pool(Processes(spec, devices), stop_when_idle=device != "cpu"))
