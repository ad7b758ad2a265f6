"""Where the committed results of the real model lie, for the programs that read them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MODEL = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf-cc324af0"
PLAIN = "sequence-probability"
"""The untrained method that others are held to."""
