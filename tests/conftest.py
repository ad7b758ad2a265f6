"""What all tests share: a small model, a small task."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Llama with the tokenizer of `tiny`."""
    from tests.fixtures import models

    return models.save(tmp_path_factory.mktemp("models") / "small", models.llama())


@pytest.fixture(scope="session")
def rivers() -> Path:
    """A plugin file with the task `rivers` and the method `echo`."""
    return Path(__file__).parent / "fixtures" / "rivers.py"
