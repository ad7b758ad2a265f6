"""The model `tiny` and a sample of MMLU on it, for the benchmarks that read prompts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench import registry
from bench.api import Format, Question, Task
from bench.api.protocol import PRESETS, Protocol
from bench.data.sources import open_source
from bench.data.splits import TaskSplit
from bench.model import specs
from bench.progress import Silent
from bench.signals.definition import definition, read_from_model
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from benchmarks.performance.measure import ROOT, NotMeasured

if TYPE_CHECKING:
    from bench.api import Signal
    from bench.model.language_model import LanguageModel

PROTOCOL: Protocol = PRESETS["fixed"]


def data_folder() -> Path:
    folder = Path(os.environ.get("CONFBENCH_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "mmlu" / "test.parquet").is_file():
        raise NotMeasured("no folder with mmlu/test.parquet; set CONFBENCH_DATA to one")
    return folder


@cache
def tiny() -> LanguageModel:
    from bench.model.language_model import LanguageModel, LoadOptions

    return LanguageModel(specs.aliases()["tiny"], LoadOptions("cpu", "float32"))


@cache
def mmlu(fmt: Format) -> Task:
    return registry.tasks().get("mmlu-choice" if fmt is Format.CHOICE else "mmlu-oe")(open_source(data_folder()))


def questions(fmt: Format, subjects: int, each: int) -> list[Question]:
    by_subject: dict[str, list[Question]] = {}
    for question in mmlu(fmt).questions("test"):
        by_subject.setdefault(question.subject, []).append(question)
    return [question for group in islice(by_subject.values(), subjects) for question in group[:each]]


def opened(fmt: Format, chosen: list[Question], folder: Path) -> tuple[Reader, SplitData]:
    store = Store(folder)
    store.prepare()
    reader = Reader(tiny(), store, PROTOCOL, 1024, Silent())
    return reader, reader.open(TaskSplit("mmlu", "test"), mmlu(fmt), chosen)


def read(fmt: Format, chosen: list[Question], signals: frozenset[Signal]) -> SplitData:
    with temporary() as folder:
        tiny().session.reset()
        reader, split_data = opened(fmt, chosen, folder)
        return reader.read(split_data, signals)


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="confbench-performance-") as name:
        yield Path(name)


def frozen_signals(fmt: Format) -> frozenset[Signal]:
    """What the paper's methods read from the unchanged model at test time, token ids and the head aside."""
    needs = [registry.methods().get(name).needs.predict for name in registry.paper_methods()]
    return frozenset(s for signals in needs for s in read_from_model(signals) if definition(s).unsupported(fmt) is None)
