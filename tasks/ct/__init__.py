"""The training corpora: 20 data sets in two formats, and the part of them that is small."""

from tasks.ct.composer import CTChoice, CTLocalChoice, CTLocalOpen, CTOpen

__all__ = ["CTChoice", "CTLocalChoice", "CTLocalOpen", "CTOpen"]
