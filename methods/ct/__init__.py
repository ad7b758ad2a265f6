"""CT, calibration tuning: the model learns to judge its answers and is held to how it answers (arXiv:2406.08391)."""

from methods.ct.method import CT

__all__ = ["CT"]
