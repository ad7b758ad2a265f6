"""CCPS: confidence from how stable the output is when the last hidden state is perturbed (arXiv:2505.21772)."""

from methods.ccps.method import Ccps

__all__ = ["Ccps"]
