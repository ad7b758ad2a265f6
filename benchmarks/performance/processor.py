"""What this processor does with small products beside other work, and with the output head in bfloat16."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from unittest import mock

import torch

from bench.api import OutputHead, batch
from benchmarks.performance.measure import Line, NotMeasured, interleaved

BUSY = "import torch\na = torch.randn(1500, 1500)\nwhile True: a = (a @ a).tanh()"
"""Another program's work, with as many threads as torch takes by itself."""
SMALL = """
import time, torch
weights = [torch.randn(576, 576).bfloat16() for _ in range(210)]
states, times = torch.randn(64, 576).bfloat16(), []
with torch.inference_mode():
    while len(times) < 3 or sum(times) < 6:
        start, x = time.perf_counter(), states
        for weight in weights:
            x = torch.nn.functional.silu(x @ weight)
        times.append(time.perf_counter() - start)
print(sorted(times)[len(times) // 2])
"""
"""As many products as a model of 30 blocks has; prints the median seconds of all of them."""
VOCABULARY, WIDTH, ROWS = 151_936, 1_536, 32
"""Of the output head of Qwen2.5-1.5B, and states at once."""


def threads(_repeats: int) -> Iterator[Line]:
    """Small products with libgomp's own spinning ÷ with that of `import bench`: on an idle machine, and beside work."""
    for name, program in (("idle", "pass"), ("beside other work", BUSY)):
        with subprocess.Popen([sys.executable, "-c", program]) as other:
            try:
                own, ours = (_seconds(spins) for spins in (None, os.environ["GOMP_SPINCOUNT"]))
            finally:
                other.kill()
        yield Line(f"small products, spinning ÷ ours, {name}", own / ours, "", f"{own:.3f} s ÷ {ours:.3f} s")


def _seconds(spins: str | None) -> float:
    environment = {key: value for key, value in os.environ.items() if key not in {"GOMP_SPINCOUNT", "OMP_NUM_THREADS"}}
    environment |= {} if spins is None else {"GOMP_SPINCOUNT": spins}
    done = subprocess.run([sys.executable, "-c", SMALL], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def logits(repeats: int) -> Iterator[Line]:
    """Logits of bfloat16 states by a float32 copy of the head, piece by piece ÷ by two bfloat16 products."""
    if not batch.has_native_bfloat16():
        raise NotMeasured("this CPU does not multiply bfloat16")
    torch.manual_seed(0)
    head = OutputHead((torch.randn(VOCABULARY, WIDTH) * 0.02).bfloat16())
    states = (torch.randn(ROWS, WIDTH) * 2).bfloat16()

    def pieces() -> torch.Tensor:
        with mock.patch.object(batch, "has_native_bfloat16", return_value=False):
            return head.logits(states)

    copied, ours = interleaved([pieces, lambda: head.logits(states)], repeats)
    error = float((head.logits(states) - pieces()).abs().max() / pieces().abs().max())
    note = f"{copied:.2f} s ÷ {ours:.2f} s for {ROWS} states, V = {VOCABULARY:,}; apart by {error:.1e} of the largest"
    yield Line("logits, float32 pieces ÷ ours", copied / ours, "", note)
