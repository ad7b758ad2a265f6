"""The peak is this process's own, and freed memory goes back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from bench.model.memory import _PROCESS, peak_memory_mb, release_free_memory


def test_peak_memory_is_of_this_process_alone() -> None:
    before = peak_memory_mb("cpu")
    ballast = np.ones(500 * 2**20, dtype=np.uint8)
    assert 20 < before <= peak_memory_mb("cpu") < 1e5
    assert ballast.nbytes / 2**20 < peak_memory_mb("cpu")
    said = subprocess.run(
        [sys.executable, "-c", "from bench.model.memory import peak_memory_mb; print(peak_memory_mb('cpu'))"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert 5 < float(said) < ballast.nbytes / 2**20


@pytest.mark.skipif(not _PROCESS.is_file(), reason="only Linux tells of a process in /proc")
def test_memory_that_is_free_goes_back() -> None:
    def resident() -> float:
        (line,) = (text for text in _PROCESS.read_text(encoding="ascii").splitlines() if text.startswith("VmRSS:"))
        return int(line.split()[1]) / 2**10

    pieces = [np.ones(2**13) for _ in range(3000)]  # 64 KiB each: below what malloc maps for itself
    kept = pieces[::100]
    before = resident()
    del pieces
    release_free_memory()
    assert before - resident() > 100
    assert all(float(piece.sum()) == len(piece) for piece in kept)


def test_peak_memory_is_of_the_named_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"cuda": 5 * 2**20, "cuda:1": 7 * 2**20}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: peaks[device])
    assert [peak_memory_mb(device) for device in peaks] == [5.0, 7.0]
    assert peak_memory_mb(*peaks) == 12.0
