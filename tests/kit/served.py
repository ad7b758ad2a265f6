"""What methods get of signals from a model: one that is loaded here, or one behind a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.api import Signal
from bench.api.protocol import FIXED
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.server_model import ServerModel
from bench.model.specs import resolve
from bench.progress import Silent
from bench.signals.definition import definition
from bench.signals.reader import Reader
from bench.store.disk_cache import Store
from tests.kit import splits
from tests.kit.model_server import ModelServer


def reader_of(lm: LanguageModel, cache: Path) -> Reader:
    store = Store(cache)
    store.prepare()
    lm.check_identity(store)
    reader = Reader(lm, store, FIXED, 256, Silent())
    vars(reader)["protocol"] = reader.protocol.__class__(**{**vars(FIXED), "max_new_tokens_open": 6})
    return reader


def served(server: ModelServer, parallel: int | None = None) -> ServerModel:
    return ServerModel(resolve(server.url), LoadOptions(device="cpu"), None, parallel)


def columns(lm: LanguageModel, cache: Path, task: Any, signals: set[Signal]) -> dict[Signal, Any]:
    """What methods get of the signals, before answers are graded."""
    reader = reader_of(lm, cache)
    done = reader.read(splits.opened(reader, task), frozenset(signals))
    return {signal: definition(signal).column(reader.stored(done)) for signal in signals}
