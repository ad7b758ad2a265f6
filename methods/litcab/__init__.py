"""LitCab: one trained linear layer corrects the logits, and the answer's own probability is the confidence."""

from methods.litcab.method import LitCab

__all__ = ["LitCab"]
