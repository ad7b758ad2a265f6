"""The memory of this process: its peak, and giving back what is free."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_PROCESS = Path("/proc/self/status")
"""File in which Linux describes this process."""

_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Words by which errors of other kinds say that memory ran out: the CPU's allocator, drivers, and cuBLAS."""


def peak_memory_mb(*devices: str) -> float:
    """Largest memory so far in MiB: the sum over accelerators where there are any, else of the process."""
    if devices[0].startswith("cuda"):
        import torch

        return float(sum(torch.cuda.max_memory_allocated(device) for device in devices)) / 2**20
    if _PROCESS.is_file():  # what getrusage says on Linux is at least the peak of the process that started this one
        (line,) = (line for line in _PROCESS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (2**20 if sys.platform == "darwin" else 2**10)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: the accelerator's own kind, or by the words of other allocators."""
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def give_back() -> None:
    """Return freed memory to the system, where the allocator is glibc's.

    It keeps what is freed between things that live on. A shard leaves small ones among megabytes of masks and states,
    so that a run over 14,042 questions would hold 140 MB of nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
