"""`Worker`: locks a shard, runs the model's forward passes on it, and writes answers and signals to the store.

Its input is a `ShardTask`, which has token ids and names of signals. So a process with a worker needs neither tasks nor
plugins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.api import AdapterRef, Signal, UserError
from bench.model.continuation_specs import ModelInput
from bench.model.devices import device_class
from bench.model.memory import peak_memory_mb, release_free_memory
from bench.model.specs import label_of
from bench.prompts.prompt_settings import PromptSettings
from bench.prompts.traces import Thinking
from bench.results import provenance
from bench.servers.readings import Ability
from bench.signals.definition import continuations_of, pass_definitions
from bench.signals.files import write_bundle
from bench.store.disk_cache import Entry, Store, digest_arrays, key_of
from bench.store.files import NO_SPACE, named_errors
from bench.store.lines import asked_path
from bench.store.locks import Timeout, file_lock, shard_claim
from bench.store.sources import source_digest

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel, LoadOptions
    from bench.model.specs import ModelSpec

_PACKAGES = ("torch", "transformers", "numpy", "peft", "deepspeed")
"""Packages, besides confbench, whose versions can change the bits of signals and adapters."""


@dataclass(frozen=True, eq=False)
class ShardTask:
    """Work for a `Worker`: the signals of one shard that the store lacks."""

    number: int
    """Index of the shard in its split; of a task for traces, index of its piece (`Reader.trace_pieces`)."""
    split: str
    kind: str
    """Folder of the store with the shard's entries, e.g. `readings/<digest>`."""
    held: tuple[str, ...] | None
    """Keys of the shard's store entries when this task was made. If the store has other keys when the task is run,
    another run has written entries, and nothing is computed. None: the signals are computed in any case."""
    items: Sequence[ModelInput]
    settings: PromptSettings
    names: Mapping[Signal, str]
    """Signal to compute -> its name in store keys."""
    seed: int
    """Seed of the samples."""
    stage: str | None = None
    """Name of a stage to which all costs are added, e.g. `adapter_predictions`; None if each stage has its own
    costs."""
    adapter: AdapterRef | None = None
    """Adapter with which the model runs; None without one."""
    thinking: Thinking | None = None
    """How traces end, if the task is to generate traces: `names` then has one `Traces` alone. None for signals."""


@dataclass(frozen=True, eq=False)
class TaskResult:
    """Outcome of a `ShardTask`; the computed arrays are in the store."""

    key: str | None = None
    """Key of the store entry that was written; None if nothing was computed, e.g. since another run had written
    entries."""
    entry: Entry | None = None
    """The store entry that was written; None if there is none, or if it was written by another process."""
    forward_tokens: int = 0
    """Number of token positions that this task fed to the model."""
    peak_memory_mb: float = 0.0
    """Peak memory of the worker process so far, in MiB; 0 if the task ran in the main process."""
    started: float = 0.0
    """Unix time in seconds at which the task started, by the clock of the worker's machine. `ended` is when it
    ended."""
    ended: float = 0.0
    is_claimed: bool = False
    """Whether this task was not run, because another run is computing the shard."""


Outcomes = Generator[tuple[ShardTask, TaskResult], None, None]


class Engine(Protocol):
    """Runs shard tasks, in this process or in others."""

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """Run tasks and yield (task, result) in any order; the next task is requested when a worker is free.

        Raises:
            UserError: a task failed.
        """

    def rest(self) -> None:
        """Release what the workers hold on the devices, e.g. an adapter; the next task loads again what it needs."""

    def close(self) -> None:
        """Stop all workers."""


def busy_last(run: Callable[..., Iterator[tuple[ShardTask, TaskResult]]], tasks: Iterable[ShardTask]) -> Outcomes:
    """Run tasks. Those whose shards another run is computing come last: only then is that run waited for.

    Args:
        run: function that runs tasks. With `wait=True` it waits for other runs; otherwise it skips shards that they are
            computing.
        tasks: all tasks.
    """
    busy_tasks = []
    for task, done in run(tasks, wait=False):
        if done.is_claimed:
            busy_tasks.append(task)
        else:
            yield task, done
    yield from run(busy_tasks, wait=True)


# --- in this process --------------------------------------------------------------------------------------------------


@dataclass
class Worker:
    """Computes the shards of one model, one after the other. In the main process a worker is the engine `local`."""

    lm: LanguageModel
    store: Store
    waits: Callable[[ShardTask, str], None] = lambda _task, _whom: None
    """Called before waiting for another run, with the task whose shard that run is computing, and the run's process."""
    _adapter_stack: ExitStack = field(default_factory=ExitStack, init=False)
    _adapter: AdapterRef | None = field(default=None, init=False)

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """Run tasks one after the other; a task whose shard another run is computing comes last (see `Engine.work`)."""

        def run(batch: Iterable[ShardTask], *, wait: bool) -> Iterator[tuple[ShardTask, TaskResult]]:
            yield from ((task, self.do(task, wait=wait)) for task in batch)

        try:
            yield from busy_last(run, tasks)
        finally:
            self.rest()

    def rest(self) -> None:
        """Remove the active adapter."""
        self._adapter = None
        self._adapter_stack.close()

    close = rest

    def do(self, task: ShardTask, *, wait: bool) -> TaskResult:
        """Run one task, unless another run is computing, or has computed, its shard.

        Args:
            task: the signals to compute for one shard.
            wait: whether to wait if another run is computing the shard; if not, the result has `is_claimed` set.

        Raises:
            UserError: the store can't be written, or the shard can't be read on this device.
        """
        started = time.time()
        path = shard_claim(self.store.root, task.kind)
        with ExitStack() as stack:
            with named_errors("The cache could not be written", NO_SPACE):
                try:
                    stack.enter_context(file_lock(path, partial(self.waits, task) if wait else None))
                except Timeout:
                    return TaskResult(is_claimed=True)
            try:
                result = self._compute(task)
            finally:
                with suppress(OSError):
                    path.unlink()  # a waiting run looks into the store before it computes
        return replace(result, started=started, ended=time.time())

    def do_for_remote(self, task: ShardTask, *, wait: bool) -> TaskResult:
        """Run a task as `do` does, but return a result without the store entry.

        The process that receives the result loads the entry from the store by its key.
        """
        result = self.do(task, wait=wait)
        release_free_memory()
        return replace(result, entry=None, peak_memory_mb=peak_memory_mb(*self.lm.devices))

    def _compute(self, task: ShardTask) -> TaskResult:
        from bench.model.extractor import Extractor
        from bench.model.server_model import ServerModel
        from bench.model.token_sampling import uniform_numbers
        from bench.model.trace_decoder import TraceDecoder, Traces
        from bench.signals.served_traces import ServedTraceDecoder
        from bench.signals.server_extractor import ServerExtractor

        if task.held is not None and task.held != tuple(self.store.keys(task.kind)):
            return TaskResult()
        if task.adapter != self._adapter:  # the adapter stays active for later tasks that need it
            self.rest()
            if task.adapter is not None:
                from bench.model.adapter import apply_adapter

                self._adapter_stack.enter_context(apply_adapter(self.lm, task.adapter))
            self._adapter = task.adapter
        items, limit, decoder = task.items, task.settings.max_new_tokens, None
        if task.thinking is None:
            n = max((sampling.n for sampling in continuations_of(task.names).samples), default=0)
        else:
            (traces,) = (name for name in task.names if isinstance(name, Traces))
            decoder = TraceDecoder(self.lm, task.settings, task.thinking, traces)
            n, limit = 0 if traces.sampling is None else traces.n, decoder.longest + 1
        if n:
            items = [replace(item, uniforms=uniform_numbers(task.seed, item.id, n, limit)) for item in items]
        journal = asked_path(self.store.root, task.kind)
        if isinstance(self.lm, ServerModel):
            extractor = (
                ServerExtractor(self.lm, task.settings, pass_definitions(task.names), task.seed)
                if decoder is None
                else ServedTraceDecoder(self.lm, task.settings, decoder.thinking, decoder.traces, task.seed)
            )
            measured = extractor.extract(items, journal)
        elif decoder is not None:
            measured = decoder.extract(items)
        else:
            measured = Extractor(self.lm, task.settings, pass_definitions(task.names), task.stage).extract(items)
        fields = {"signals": sorted(task.names.values()), "answers": digest_arrays(measured.answers)}
        # One folder for the whole pass: a killed run has stored all of it or nothing, and so repeats the same pass.
        entry = self.store.put(
            task.kind,
            key_of(fields),
            fields,
            partial(write_bundle, measured=measured, names=task.names),
            split=task.split,
            model=label_of(self.lm.spec),
            token_budget=task.settings.budget,
            costs={stage: asdict(cost) for stage, cost in measured.costs.items()},
            halvings=measured.halvings,
            packed=self.lm.uses_packs,
            bytes_per_token=measured.bytes_per_token,
            bounds={task.names[signal]: rows for signal, rows in measured.bounds.items()},
            hindrance=self.lm.no_packs_reason,
        )
        if isinstance(self.lm, ServerModel) and Ability.GIVEN in self.lm.dialect.abilities:
            journal.unlink(missing_ok=True)  # else another signal of these answers can be read from it alone
        return TaskResult(entry.folder.name, entry, sum(cost.forward_tokens for cost in measured.costs.values()))


# --- in other processes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerSpec:
    """Picklable description from which another process or machine builds a worker."""

    model: ModelSpec
    options: LoadOptions
    cache: Path
    """Folder of the store, which all workers share."""
    threads: int
    """CPU threads of a forward pass; their number changes the last bits of its results."""
    expected: Mapping[str, str]
    """Software and hardware of the run's main process (see `describe_environment`). A worker's must be the same."""
    witness: str = ""
    """Name of a file in the run's store. A worker that doesn't find it has another store. Empty if this is not
    checked."""

    @classmethod
    def of(cls, lm: LanguageModel, store: Store, threads: int, witness: str = "") -> WorkerSpec:
        """Return the description of a worker with the given model and store."""
        spec, device = lm.spec, lm.device
        source = str(Path(spec.source).resolve()) if spec.local else spec.source
        model = replace(spec, source=source, revision=lm.files.commit or spec.revision)
        options = replace(lm.options, device=device, dtype=lm.dtype_name)
        return cls(model, options, store.root.resolve(), threads, describe_environment(lm), witness)

    def build_worker(self) -> Worker:
        """Load the model and return the worker.

        Raises:
            UserError: store, model, package versions or device differ from the run's.
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
        _check(self.expected, describe_environment(lm))
        return Worker(lm, Store(self.cache))


def describe_environment(lm: LanguageModel) -> dict[str, str]:
    """Return what the exact bits of signals depend on: package versions, model, dtype and device."""
    device = "any" if str(lm.dtype) == "torch.float32" else device_class(*lm.devices)
    return {**_versions(), "model": lm.fingerprint, "dtype": str(lm.dtype), "device": device}


def _versions() -> dict[str, str]:
    """Return package versions; for confbench also a digest of its sources, which may change within one version."""
    versions = {name: provenance.version_of(name) or "not installed" for name in ("confbench", *_PACKAGES)}
    package = Path(__file__).resolve().parents[1]
    return {**versions, "confbench": f"{versions['confbench']}, sources {source_digest([package])[:8]}"}


def _check(expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if actual[name] != value:
            remote, local = (text if len(text) < 64 else text[:12] for text in (value, actual[name]))  # a digest
            raise UserError(
                f"expected {name} {remote} as where the run was started, found {local}. Make them the same on all"
                " machines."
            )
