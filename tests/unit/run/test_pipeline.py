"""Runs of one process."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from bench.api import UserError
from bench.run import pipeline
from bench.run.config import RunConfig


def test_threads_run_one_after_the_other_and_streams_are_theirs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[int] = []
    together: list[int] = []

    def resolve(*_: object) -> None:
        inside.append(1)
        together.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        raise UserError("enough")

    def go() -> None:
        with pytest.raises(UserError, match="enough"):
            pipeline.run(RunConfig(methods=("ptrue",), model="tiny", cache=tmp_path))

    monkeypatch.setattr(pipeline, "resolve", resolve)
    before = sys.stdout
    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1, 1, 1]
    assert sys.stdout is before
