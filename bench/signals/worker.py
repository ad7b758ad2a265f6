"""Whoever measures shards: claims one, reads it on a model, puts what it found into the store.

The work on a shard is a plain value of token ids and names, so that whoever does it needs no task and no plugin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.api import AdapterRef, Signal, UserError
from bench.model.continuation_specs import ModelInput
from bench.model.devices import class_of
from bench.model.memory import give_back, peak_memory_mb
from bench.model.specs import label_of
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import growth_of, pass_definitions
from bench.signals.files import write_bundle
from bench.store.folders import Entry, Store, digest_arrays, key_of
from bench.store.locks import Timeout, file_lock, shard_claim
from bench.store.sources import source_digest

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel, LoadOptions
    from bench.model.specs import ModelSpec

_PACKAGES = ("torch", "transformers", "numpy", "peft", "deepspeed")
"""Packages besides this one on which the bits of a reading or of an adapter depend."""


@dataclass(frozen=True, eq=False)
class ShardTask:
    """The missing part of one shard."""

    number: int
    """Number of the shard in its split, from 0."""
    split: str
    kind: str
    """The part of the store where the shard's entries lie."""
    held: tuple[str, ...] | None
    """Keys of the entries that lay there: where others lie beside them, somebody was quicker. None: compute anyway."""
    items: Sequence[ModelInput]
    asking: PromptSettings
    names: Mapping[Signal, str]
    """Signals that are measured, with their names in keys."""
    seed: int
    """Seed of samples."""
    stage: str | None = None
    """Stage under which all costs are counted; None: each under its own."""
    adapter: AdapterRef | None = None
    """Through which adapter it is read."""


@dataclass(frozen=True, eq=False)
class Done:
    """Outcome of a task; its numbers lie in the store."""

    key: str | None = None
    """Key of the entry that was put; None where nothing was computed, since others have put some meanwhile."""
    entry: Entry | None = None
    """The entry, where it was put by this process."""
    forward_tokens: int = 0
    """Token positions fed to the model."""
    peak_memory_mb: float = 0.0
    """Largest memory so far of a process other than this one."""
    started: float = 0.0
    """Seconds since 1970 on the clock of the machine that did it; so is `ended`."""
    ended: float = 0.0
    taken: bool = False
    """Whether another run is computing the shard."""


Outcomes = Generator[tuple[ShardTask, Done], None, None]


class Engine(Protocol):
    """Does tasks, in this process or elsewhere."""

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """Do tasks in any order; each is drawn from `tasks` when somebody is there to do it.

        Raises:
            UserError: one of them can't be done.
        """

    def rest(self) -> None:
        """Give devices back until there is work again."""

    def close(self) -> None:
        """End whatever was started."""


def busy_last(run_tasks: Callable[..., Iterator[tuple[ShardTask, Done]]], tasks: Iterable[ShardTask]) -> Outcomes:
    """Do tasks; those that another run is computing come last, and are waited for.

    Args:
        each: does some tasks; `wait` says whether it waits for other runs.
        tasks: all.
    """
    busy_tasks = []
    for task, done in run_tasks(tasks, wait=False):
        if done.taken:
            busy_tasks.append(task)
        else:
            yield task, done
    yield from run_tasks(busy_tasks, wait=True)


# --- in this process --------------------------------------------------------------------------------------------------


@dataclass
class Worker:
    """Measures shards on one model, one after the other. In the run's own process it is the engine `local`."""

    lm: LanguageModel
    store: Store
    waits: Callable[[ShardTask, str], None] = lambda _task, _whom: None
    """Told which shard is computed by another run, and by which process."""
    _adapter_stack: ExitStack = field(default_factory=ExitStack, init=False)
    _adapter: AdapterRef | None = field(default=None, init=False)

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """See `Engine`: one after the other; those that another run is computing come last."""

        def run_tasks(batch: Iterable[ShardTask], *, wait: bool) -> Iterator[tuple[ShardTask, Done]]:
            yield from ((task, self.do(task, wait=wait)) for task in batch)

        try:
            yield from busy_last(run_tasks, tasks)
        finally:
            self.rest()

    def rest(self) -> None:
        """Read through no adapter any more."""
        self._adapter = None
        self._adapter_stack.close()

    close = rest

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
        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock(path, partial(self.waits, task) if wait else None))
            except Timeout:
                return Done(taken=True)
            except OSError as error:
                raise UserError(
                    f"The cache could not be written: {error.strerror or error}. Free some disk space, or set"
                    " CONFBENCH_CACHE to another folder."
                ) from error
            try:
                result = self._compute(task)
            finally:
                with suppress(OSError):
                    path.unlink()  # whoever waits for it looks into the store first
        return replace(result, started=started, ended=time.time())

    def told(self, task: ShardTask, *, wait: bool) -> Done:
        """The outcome of `do` as it is told to another process, which finds the entry in the store."""
        result = self.do(task, wait=wait)
        give_back()
        return replace(result, entry=None, peak_memory_mb=peak_memory_mb(*self.lm.devices))

    def _compute(self, task: ShardTask) -> Done:
        from bench.model.extractor import Extractor
        from bench.model.sampling import uniforms

        if task.held is not None and task.held != tuple(self.store.keys(task.kind)):
            return Done()
        if task.adapter != self._adapter:  # it stays on for the tasks after this one that are read through the same
            self.rest()
            if task.adapter is not None:
                from bench.model.adapter import adapted

                self._adapter_stack.enter_context(adapted(self.lm, task.adapter))
            self._adapter = task.adapter
        items, limit = task.items, task.asking.max_new_tokens
        if n := max((sampling.n for sampling in growth_of(task.names).samples), default=0):
            items = [replace(item, uniforms=uniforms(task.seed, item.id, n, limit)) for item in items]
        measured = Extractor(self.lm, task.asking, pass_definitions(task.names), task.stage).measure(items)
        fields = {"signals": sorted(task.names.values()), "answers": digest_arrays(measured.answers)}
        # One folder for the whole pass: a killed run has all of it or nothing, and so repeats the same pass.
        entry = self.store.put(
            task.kind,
            key_of(fields),
            fields,
            partial(write_bundle, measured=measured, names=task.names),
            split=task.split,
            model=label_of(self.lm.spec),
            token_budget=task.asking.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
            packed=self.lm.packed,
            bytes_per_token=measured.bytes_per_token,
            hindrance=self.lm.hindrance,
        )
        return Done(entry.folder.name, entry, sum(cost.forward_tokens for cost in measured.costs.values()))


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
    def of(cls, lm: LanguageModel, store: Store, threads: int, witness: str = "") -> WorkerSpec:
        """A worker with this model and this store."""
        spec, device = lm.spec, lm.device
        source = str(Path(spec.source).resolve()) if spec.local else spec.source
        model = replace(spec, source=source, revision=lm.files.commit or spec.revision)
        options = replace(lm.options, device=device, dtype=lm.dtype_name)
        return cls(model, options, store.root.resolve(), threads, surroundings(lm), witness)

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

        from bench.model.language_model import LanguageModel

        torch.set_num_threads(self.threads)
        lm = LanguageModel(self.model, self.options)
        _check(self.expected, surroundings(lm))
        return Worker(lm, Store(self.cache))


def surroundings(lm: LanguageModel) -> dict[str, str]:
    """All on which the bits of a reading depend besides its task, in words: versions, model, device."""
    device = "any" if str(lm.dtype) == "torch.float32" else class_of(*lm.devices)
    return {**_versions(), "model": lm.fingerprint, "dtype": str(lm.dtype), "device": device}


def _versions() -> dict[str, str]:
    """Versions of packages; of this one with a digest of its sources, since two of one version may differ."""
    versions = {}
    for name in ("confbench", *_PACKAGES):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # it is run where it lies
            versions[name] = "not installed"
    package = Path(__file__).resolve().parents[1]
    return {**versions, "confbench": f"{versions['confbench']}, sources {source_digest([package])[:8]}"}


def _check(expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if actual[name] != value:
            remote, local = (text if len(text) < 64 else text[:12] for text in (value, actual[name]))  # noqa: PLR2004 - a digest
            raise UserError(
                f"expected {name} {remote} as where the run was started, found {local}. Make them the same on all"
                " machines."
            )
