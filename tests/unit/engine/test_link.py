"""A link to a Ray cluster is made before it is asked, and leaves this program as it was."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from bench.api import UserError
from bench.engine.link import _preserve_signal_handlers
from bench.engine.trainings import Trainings


def test_signal_handlers_are_this_programs_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _preserve_signal_handlers():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


def test_training_connects_to_its_cluster_first() -> None:
    """Where all signals are stored, nothing was read before; Ray would start a cluster of its own on this machine."""
    asked: list[str] = []
    link: Any = SimpleNamespace(
        connect=lambda: asked.append("connect"), has_room=lambda _: bool(asked.append("has room?")), on_gpus=True
    )
    work: Any = SimpleNamespace(method="it", processes=2)
    with pytest.raises(UserError, match="expected a machine with 2 cards in the cluster, found none"):
        Trainings(link, lambda: None).train("key", work, wait=True)
    assert asked == ["connect", "has room?"]
