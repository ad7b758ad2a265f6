"""LitCab: probability of the answer with logits adjusted by a trained linear layer."""

from methods.litcab.method import LitCab

__all__ = ["LitCab"]
