"""Runs whose models are checked once."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _checked_once(checked_once: None) -> None:
    """What is checked where a model is loaded is proven in `unit/model/`."""
