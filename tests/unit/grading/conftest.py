"""What the judges' tests share: nobody's key, a server, and a progress that remembers what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.progress import Advance
from tests.kit.servers import JudgeServer


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's key and no proxy gets into a test."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Heard:
    """A progress that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int]] = []
        self.done = 0

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        self.stages.append((name, total))
        yield self._advance

    def _advance(self, step: int) -> None:
        self.done += step

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    one = JudgeServer()
    yield one
    one.stop()
