"""What is missing of a shard is computed by one of those who need it, from a value that tells all."""

from __future__ import annotations

import io
import os
import pickle
import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from bench.api import AdapterRef, At, Hidden, Of, QueryLogits, Question, Split, TokenIds, UserError
from bench.api.protocol import FIXED
from bench.engine.local_processes import Processes
from bench.engine.pool import Pool
from bench.model import folder
from bench.model.adapter import fingerprint, record_base
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.prompts import shards as sharding
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.signals.worker import ShardTask, TaskResult, Worker, WorkerSpec, _check
from bench.store.disk_cache import Store, key_of
from bench.store.locks import Timeout, file_lock
from tests.fixtures.rivers import Rivers
from tests.kit import passes, splits

SIGNALS = frozenset({Hidden(1.0, At.PROMPT_END), QueryLogits(), TokenIds(Of.GOLD)})
N = 4


class Few(Rivers):
    """Four questions."""

    def questions(self, split: Split) -> Iterator[Question]:
        for i in range(2 if split == "dev" else N):
            yield Question(f"{split}/{i}", f"s{i}", f"Where does river {i} end?", ("Tove", "Kiru", "Bamo"), i % 3)


@pytest.fixture(autouse=True)
def a_shard_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "_SHARD", 1)


@pytest.fixture
def reader(small_model: Path, tmp_path: Path) -> Reader:
    store = Store(tmp_path / "cache")
    store.prepare()
    return Reader(passes.load(small_model), store, FIXED, 1024, Silent())


def opened(reader: Reader) -> SplitData:
    return splits.opened(reader, Few)


def tasks_of(reader: Reader) -> list[ShardTask]:
    """What a read of an empty store hands to its engine."""
    seen: list[ShardTask] = []

    class Noting(Worker):
        def do(self, task: ShardTask, *, wait: bool):  # type: ignore[no-untyped-def]
            seen.append(task)
            return super().do(task, wait=wait)

    elsewhere = Store(reader.store.root.parent / "noted")
    elsewhere.prepare()
    noting = replace(reader, store=elsewhere, engine=Noting(reader.lm, elsewhere))
    noting.read(opened(noting), SIGNALS)
    return seen


def files(store: Store) -> Mapping[str, object]:
    """Key -> digests of files, for all readings."""
    kinds = [f"readings/{path.name}" for path in sorted((store.root / "readings").iterdir())]
    return {f"{kind}/{e.folder.name}": e.manifest["files"] for kind in kinds for e in store.entries(kind)}


class Elsewhere(pickle.Unpickler):  # noqa: S301
    """Reads a pickle where no plugin can be imported."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.partition(".")[0] not in {"tests", "tasks", "methods"}, (module, name)
        return super().find_class(module, name)


def sent(given: Any) -> Any:
    return Elsewhere(io.BytesIO(pickle.dumps(given))).load()


def test_task_is_done_from_its_pickle_alone(reader: Reader, tmp_path: Path) -> None:
    """Neither the task's class nor the folder of its data is there."""
    spec, tasks = sent((WorkerSpec.of(reader.lm, reader.store, 1), tasks_of(reader)))
    assert len(tasks) == N
    worker = spec.build_worker()
    assert all(worker.do_for_remote(task, wait=True).forward_tokens for task in tasks)
    assert files(reader.store) == files(Store(tmp_path / "noted"))
    again = reader.read(opened(reader), SIGNALS)
    assert (reader.forward_tokens, len(again.bundles)) == (0, N)


def test_task_done_meanwhile_is_not_computed_again(reader: Reader) -> None:
    (task, *_), worker = tasks_of(reader), Worker(reader.lm, reader.store)
    first, late = (worker.do(task, wait=True) for _ in range(2))
    assert (first.key is not None, first.forward_tokens > 0, late.key, late.forward_tokens) == (True, True, None, 0)


def test_read_looks_again_where_others_were_quicker(reader: Reader) -> None:
    class Late(Worker):
        """Finds that somebody has done each task just before."""

        def do(self, task: ShardTask, *, wait: bool):  # type: ignore[no-untyped-def]
            Worker(self.lm, self.store).do(task, wait=wait)
            return super().do(task, wait=wait)

    late = replace(reader, engine=Late(reader.lm, reader.store))
    split_data = late.read(opened(late), SIGNALS)
    assert late.forward_tokens == 0
    assert [len(entries) for entries in split_data.bundles] == [1] * N
    assert files(reader.store).keys() == {
        f"{e.manifest['kind']}/{e.folder.name}" for entries in split_data.bundles for e in entries
    }


def test_shard_of_another_run_is_waited_for_last(reader: Reader) -> None:
    tasks = tasks_of(reader)
    said: list[str] = []
    order: list[int] = []
    with held_by_another(_lock(reader, tasks[0])) as let_go:

        def waiting(task: ShardTask, whom: str) -> None:
            said.append(f"{task.number} {whom}")
            let_go.set()

        worker = Worker(reader.lm, reader.store, waiting)
        with pytest.raises(Timeout), file_lock(_lock(reader, tasks[0]), None):
            pass
        assert worker.do(tasks[0], wait=False).is_claimed
        for task, done in worker.work(tasks):
            assert not done.is_claimed
            order.append(task.number)
    assert order == [1, 2, 3, 0]
    assert said == [f"0 process {os.getpid()} on {platform.node()}, since {said[0][-23:]}"]
    assert not list((reader.store.root / "claims").glob("shard-*"))


@contextmanager
def held_by_another(path: Path) -> Iterator[Event]:
    """A thread holds the claim until the event is set; to the system it is like a process."""
    holds, let_go = Event(), Event()

    def hold() -> None:
        with file_lock(path, None):
            holds.set()
            let_go.wait(30)

    thread = Thread(target=hold)
    thread.start()
    assert holds.wait(30)
    try:
        yield let_go
    finally:
        let_go.set()
        thread.join()


def _lock(reader: Reader, task: ShardTask) -> Path:
    return reader.store.root / "claims" / f"shard-{key_of({'shard': task.kind})[:32]}.lock"


def test_worker_reads_the_commit_of_the_run(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main branch may move before they look it up."""
    snapshot = tmp_path / "snapshots" / ("c" * 40)
    snapshot.parent.mkdir()
    snapshot.symlink_to(small_model)
    monkeypatch.setattr(folder, "snapshot_download", lambda *_, **__: str(snapshot))
    lm = LanguageModel(ModelSpec("org/small", "org/small", local=False), LoadOptions(device="cpu"))
    spec = WorkerSpec.of(lm, Store(tmp_path / "cache"), 1)
    assert (spec.model.source, spec.model.revision) == ("org/small", "c" * 40)


def test_worker_refuses_what_differs_from_the_run(reader: Reader, tmp_path: Path) -> None:
    spec = WorkerSpec.of(reader.lm, reader.store, 1)
    told = {name: {**spec.expected, name: "another"} for name in spec.expected}
    for name, expected in told.items():
        with pytest.raises(UserError, match=f"expected {name} another as where the run was started, found .+ Make"):
            replace(spec, expected=expected).build_worker()
    with pytest.raises(
        UserError, match=r"expected the cache folder .+ found another one or none\. Set CONFBENCH_CACHE"
    ):
        replace(spec, cache=tmp_path / "other", witness="seen").build_worker()
    with pytest.raises(UserError, match=r"expected config\.json in it, found none"):
        replace(spec, model=replace(spec.model, source=str(tmp_path / "none"))).build_worker()
    with pytest.raises(UserError, match=r"expected model a{12} as .+, found b{12}\."):
        _check({"model": "a" * 64}, {"model": "b" * 64})


def test_worker_finds_relative_model_and_cache(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_model.parent)
    lm = LanguageModel(ModelSpec("small", small_model.name, local=True), LoadOptions(device="cpu"))
    spec = WorkerSpec.of(lm, Store(Path("cache")), 1)
    monkeypatch.chdir(tmp_path)
    worker = spec.build_worker()
    assert worker.lm.fingerprint == lm.fingerprint
    assert worker.store.root == small_model.parent.resolve() / "cache"
    assert np.dtype("float32").name in str(worker.lm.dtype)


@pytest.fixture
def adapter(reader: Reader, tmp_path: Path) -> AdapterRef:
    """An adapter that changes what is read."""
    import peft
    import torch

    settings = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    lm = LanguageModel(reader.lm.spec, reader.lm.options)
    torch.manual_seed(0)
    peft.get_peft_model(lm.model, settings).save_pretrained(tmp_path / "adapter")
    record_base(tmp_path / "adapter", lm.fingerprint, "small")
    return AdapterRef(tmp_path / "adapter", fingerprint(tmp_path / "adapter"))


class Far:
    """An engine with one worker, which gets tasks as one in another process does."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.worker: Worker = sent(spec).build_worker()

    def work(self, tasks: Iterable[ShardTask]) -> Generator[tuple[ShardTask, TaskResult], None, None]:
        for task in tasks:
            yield task, self.worker.do_for_remote(sent(task), wait=True)

    def close(self) -> None:
        self.worker.close()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "engine", [Far, pytest.param(lambda spec: Pool(Processes(spec, ["cpu"])), id="process", marks=pytest.mark.slow)]
)
def test_adapter_is_switched_on_elsewhere_and_off(
    reader: Reader, adapter: AdapterRef, tmp_path: Path, engine: Callable[[WorkerSpec], Far | Pool]
) -> None:
    store = Store(tmp_path / "elsewhere")
    store.prepare()
    spec = WorkerSpec.of(reader.lm, store, 1)
    there = replace(reader, store=store, engine=engine(spec))
    with closing(there.active_engine):
        for each in (reader, there):
            split_data = each.read(opened(each), SIGNALS)
            through = each.read_adapted(split_data, adapter)
            assert each.forward_tokens > 0
            assert all(entry.manifest["kind"].endswith("-adapted") for (entry,) in through.bundles)
        assert files(store) == files(reader.store)
        assert len(files(store)) == 2 * N
        own, frozen = (
            {e.folder.name: sorted(e.manifest["files"].values()) for (e,) in r.bundles} for r in (through, split_data)
        )
        assert not {tuple(v) for v in own.values()} & {tuple(v) for v in frozen.values()}
        before = there.forward_tokens
        there.read_adapted(split_data, adapter)
        assert there.forward_tokens == before
        more = frozenset({Hidden(0.5, At.PROMPT_END)})
        assert [each.read(opened(each), more).bundles != [] for each in (reader, there)] == [True, True]
        assert files(store) == files(reader.store)  # read by the frozen weights again
