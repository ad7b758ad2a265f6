"""Whoever measures shards: claims one, reads it on a backbone, puts what it found into the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import AdapterRef, UserError
from bench.backbone.devices import class_of
from bench.backbone.memory import give_back, peak_memory_mb
from bench.backbone.models import label_of
from bench.signals.definition import growth_of, pass_definitions
from bench.signals.files import write_bundle
from bench.signals.shard_task import Done, ShardTask
from bench.store.folders import Entry, Store, digest_arrays, key_of
from bench.store.locks import Timeout, file_lock, shard_claim
from bench.store.sources import source_digest

if TYPE_CHECKING:
    from bench.backbone.extract import Measured
    from bench.backbone.items import Item
    from bench.backbone.model import Backbone, LoadOptions
    from bench.backbone.models import ModelSpec

_PACKAGES = ("torch", "transformers", "numpy", "peft", "deepspeed")
"""Packages besides this one on which the bits of a reading or of an adapter depend."""


@dataclass
class Worker:
    """Measures shards on one backbone, one after the other. In the run's own process it is the engine `local`."""

    backbone: Backbone
    store: Store
    waits: Callable[[ShardTask, str], None] = lambda _task, _whom: None
    """Told which shard is computed by another run, and by which process."""
    _switched: ExitStack = field(default_factory=ExitStack, init=False)
    _adapter: AdapterRef | None = field(default=None, init=False)

    def work(self, tasks: Iterable[ShardTask]) -> Generator[tuple[ShardTask, Done], None, None]:
        """See `Engine`: one after the other; those that another run is computing come last."""
        taken = []
        try:
            for task in tasks:
                done = self.do(task, wait=False)
                if done.taken:
                    taken.append(task)
                else:
                    yield task, done
            for task in taken:
                yield task, self.do(task, wait=True)
        finally:
            self.rest()

    def rest(self) -> None:
        """Read through no adapter any more."""
        self._adapter = None
        self._switched.close()

    def close(self) -> None:
        """See `rest`."""
        self.rest()

    def do(self, task: ShardTask, *, wait: bool) -> Done:
        """Do one task, unless somebody else has.

        Args:
            task: what is missing.
            wait: for another run that is computing the shard, instead of saying so.

        Raises:
            UserError: the store can't be written, or the shard can't be read on this device.
        """
        started = time.time()
        path = shard_claim(self.store.root, task.kind)
        with ExitStack() as holding:
            try:
                holding.enter_context(file_lock(path, partial(self.waits, task) if wait else None))
            except Timeout:
                return Done(taken=True)
            except OSError as error:
                raise UserError(
                    f"The cache could not be written: {error.strerror or error}. Free some disk space, or set"
                    " CONFBENCH_CACHE to another folder."
                ) from error
            try:
                done = self._done(task)
            finally:
                with suppress(OSError):
                    path.unlink()  # whoever waits for it looks into the store first
        return replace(done, started=started, ended=time.time())

    def told(self, task: ShardTask, *, wait: bool) -> Done:
        """The outcome of `do` as it is told to another process, which finds the entry in the store."""
        done = self.do(task, wait=wait)
        give_back()
        return replace(done, entry=None, peak_memory_mb=peak_memory_mb(*self.backbone.devices))

    def _done(self, task: ShardTask) -> Done:
        if task.held is not None and task.held != tuple(self.store.keys(task.kind)):
            return Done()
        measured = self._measured(task)
        entry = self._put(task, measured)
        return Done(entry.folder.name, entry, sum(cost.forward_tokens for cost in measured.costs.values()))

    def _measured(self, task: ShardTask) -> Measured:
        from bench.backbone.extract import Extractor

        self._read_through(task.adapter)
        measures = pass_definitions(task.names)
        return Extractor(self.backbone, task.asking, measures, task.stage).measure(list(_items(task)))

    def _read_through(self, adapter: AdapterRef | None) -> None:
        """Switch an adapter on, for this task and those after it that are read through the same."""
        if adapter == self._adapter:
            return
        self.rest()
        if adapter is not None:
            from bench.backbone.adapter import adapted

            self._switched.enter_context(adapted(self.backbone, adapter))
        self._adapter = adapter

    def _put(self, task: ShardTask, measured: Measured) -> Entry:
        """One folder for the whole pass: a killed run has all of it or nothing, and so repeats the same pass."""
        fields = {"signals": sorted(task.names.values()), "answers": digest_arrays(measured.answers)}
        return self.store.put(
            task.kind,
            key_of(fields),
            fields,
            partial(write_bundle, measured=measured, names=task.names),
            split=task.split,
            model=label_of(self.backbone.spec),
            token_budget=task.asking.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
            packed=self.backbone.packed,
            bytes_per_token=measured.bytes_per_token,
            hindrance=self.backbone.hindrance,
        )


def _items(task: ShardTask) -> Iterator[Item]:
    from bench.backbone.items import Item
    from bench.backbone.sampling import uniforms

    n_samples = max((sampling.n for sampling in growth_of(task.names).samples), default=0)
    for i, question in enumerate(task.questions):
        yield Item(
            task.prompts[i],
            answer=None if task.answers is None else task.answers[i],
            uniforms=uniforms(task.seed, question.id, n_samples, task.asking.max_new_tokens) if n_samples else None,
            samples={sampling: samples[i] for sampling, samples in task.samples.items()},
            **question.read(),
        )


# --- elsewhere --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerSpec:
    """A worker as a plain value, for another process or another machine."""

    model: ModelSpec
    options: LoadOptions
    cache: Path
    """The store, which all workers share."""
    threads: int
    """Threads of a forward pass on the CPU, on which last bits depend."""
    expected: Mapping[str, str]
    """Surroundings where the run was started: see `surroundings`."""
    witness: str = ""
    """A file in the store by which a worker sees that it is the same."""

    @classmethod
    def of(cls, backbone: Backbone, store: Store, threads: int, witness: str = "") -> WorkerSpec:
        """A worker with this backbone and this store."""
        spec, device = backbone.spec, backbone.device
        source = str(Path(spec.source).resolve()) if spec.local else spec.source
        model = replace(spec, source=source, revision=backbone.files.commit or spec.revision)
        options = replace(backbone.options, device=device, dtype=backbone.dtype_name)
        return cls(model, options, store.root.resolve(), threads, surroundings(backbone), witness)

    def opened(self) -> Worker:
        """The worker.

        Raises:
            UserError: this machine has not what it needs, or has something else.
        """
        _check({name: self.expected.get(name, "none") for name in ("confbench", *_PACKAGES)}, _versions())
        if self.witness and not (self.cache / self.witness).is_file():
            raise UserError(
                f"expected the cache folder {self.cache} of the run, found another one or none. Set CONFBENCH_CACHE to"
                " a folder that all machines share."
            )
        import torch

        from bench.backbone.model import Backbone

        torch.set_num_threads(self.threads)
        backbone = Backbone(self.model, self.options)
        _check(self.expected, surroundings(backbone))
        return Worker(backbone, Store(self.cache))


def surroundings(backbone: Backbone) -> dict[str, str]:
    """All on which the bits of a reading depend besides its task, in words: versions, model, device."""
    device = "any" if str(backbone.dtype) == "torch.float32" else class_of(*backbone.devices)
    return {**_versions(), "model": backbone.fingerprint, "dtype": str(backbone.dtype), "device": device}


def _versions() -> dict[str, str]:
    """Versions of packages; of this one with a digest of its sources, since two of one version may differ."""
    package = Path(__file__).resolve().parents[1]
    told = {name: _version(name) for name in ("confbench", *_PACKAGES)}
    return {**told, "confbench": f"{told['confbench']}, sources {source_digest([package])[:8]}"}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # it is run where it lies
        return "not installed"


def _check(expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if found[name] != value:
            raise UserError(
                f"expected {name} {_short(value)} as where the run was started, found {_short(found[name])}. Make them"
                " the same on all machines."
            )


def _short(value: str) -> str:
    return value if len(value) < 64 else value[:12]  # noqa: PLR2004 - a digest
