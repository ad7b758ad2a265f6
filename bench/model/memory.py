"""Memory of this process: peak usage, out-of-memory errors, returning freed memory to the system."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_PROCESS = Path("/proc/self/status")
"""File in which Linux describes this process."""

_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "MemoryError")
"""Parts of messages by which out-of-memory errors of a general type are recognised: CPU allocator, drivers, cuBLAS, and
Python's own error in a message or a log."""


def peak_memory_mb(*devices: str) -> float:
    """Return the peak memory in MiB: for CUDA, the sum of the devices' peaks; otherwise the peak of this process."""
    if devices[0].startswith("cuda"):
        import torch

        return float(sum(torch.cuda.max_memory_allocated(device) for device in devices)) / 2**20
    if _PROCESS.is_file():  # on Linux getrusage includes the peak of the parent process
        (line,) = (line for line in _PROCESS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (2**20 if sys.platform == "darwin" else 2**10)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says by its type or its message that memory ran out."""
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def release_free_memory() -> None:
    """Return freed memory to the system, if the allocator is glibc's.

    By itself, glibc keeps freed memory that lies below memory in use. In a run over 14,042 questions, 140 MB of masks
    and hidden states would be kept.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
