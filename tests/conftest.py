"""What all tests share: one thread in each process, a small model, a small task."""

from __future__ import annotations

import gc
import importlib.metadata
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.durations import COMMITTED, pytest_runtest_logreport, pytest_sessionfinish  # noqa: F401 - hooks

if TYPE_CHECKING:
    from tests.fixtures.whole_run import WholeRun

# Before torch is imported, here and in the processes that tests start: as many threads as cores in each of the workers
# that run side by side take longer than one, and sums of floats depend on how many there are.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_LONG = 3.0
"""Seconds from which on a file is long."""


def pytest_configure() -> None:
    """Hear signals that the jobs of a shell and `nohup` ignore, and hand down to what tests start; seed torch lightly.

    Nothing waits for the disk, milliseconds each time: no test cuts the power. Garbage is looked for seventy times less
    often, which took 6 to 13 % of the time of tests and a sixth while libraries load.

    DeepSpeed gives pytest-randomly a seeder whose import takes seconds in every process, also where no test uses torch.
    `torch.manual_seed` formats the stack for CUDA before there is a context, 1 ms in each of thousands of tests.
    """
    if randomly := sys.modules.get("pytest_randomly"):
        randomly.entrypoint_reseeds = [_seed_torch]
    os.fsync = lambda _descriptor: None
    gc.set_threshold(50_000, 10, 10)
    if threading.current_thread() is threading.main_thread():
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, usual)


def _seed_torch(seed: int) -> None:
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed % 2**63)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed % 2**63)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, the others in their random order: one that began last would be waited for alone."""
    seconds = json.loads(COMMITTED.read_text(encoding="utf-8"))["files"]
    items.sort(key=lambda item: min(0.0, _LONG - seconds.get(item.nodeid.partition("::")[0], 0.0)))


def pytest_collection_finish() -> None:
    """Take libraries and tests, some millions of objects, out of what each full garbage collection looks through.

    The certificates of this machine are read once: each client of a server, also of one without TLS, reads them anew.
    So are the files of installed packages, which each run looks through. Clients wait little before they try again.
    """
    if httpcore2 := sys.modules.get("httpcore2"):
        httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)
    if registry := sys.modules.get("bench.registry"):
        look = cache(lambda _path, _reader, look=registry._points: look())
        registry._points = lambda: look(tuple(sys.path), importlib.metadata.entry_points)
    if client := sys.modules.get("openai._base_client"):
        client.INITIAL_RETRY_DELAY = 0.01  # seconds, 0.5 otherwise
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Llama with the tokenizer of `tiny`."""
    from tests.fixtures import models

    return models.save(tmp_path_factory.mktemp("models") / "small", models.llama())


@pytest.fixture(scope="session")
def rivers() -> Path:
    """A plugin file with the task `rivers` and the method `echo`."""
    return Path(__file__).parent / "fixtures" / "rivers.py"


@pytest.fixture(scope="session")
def whole_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """A run of six methods with recalibration and heads, and one with two seeds, which tests only read."""
    from tests.fixtures import whole_run

    own = tmp_path_factory.getbasetemp()
    return whole_run.made(own.parent if hasattr(request.config, "workerinput") else own)


@pytest.fixture(scope="session")
def _checked() -> dict[object, str | None]:
    return {}


@pytest.fixture(scope="module")
def checked_once(_checked: dict[object, str | None]) -> Iterator[None]:
    """Check a model's passes where it is loaded for the first time; runs load few models many times."""
    from bench.model.language_model import LanguageModel

    check: Any = vars(LanguageModel)["no_packs_reason"].func

    def once(lm: LanguageModel) -> str | None:
        key = (lm.fingerprint, lm.device, lm.options)
        if key not in _checked:
            _checked[key] = check(lm)
        return _checked[key]

    remembered = cached_property(once)
    remembered.__set_name__(LanguageModel, "no_packs_reason")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModel, "no_packs_reason", remembered)
        yield


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train adapters in this process, which has imported the libraries; a child's import of them takes seconds."""
    from bench.training import child, loop

    @contextmanager
    def here(config: Path, _processes: int, _devices: object) -> Iterator[object]:
        with redirect_stdout(io.StringIO()) as out:
            loop.main(config)
        yield SimpleNamespace(stdout=out.getvalue().splitlines(keepends=True), wait=lambda: 0)

    monkeypatch.setattr(child, "start_child", here)
