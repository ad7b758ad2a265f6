"""Training corpora CT-CHOICE and CT-OE: 20 data sets in two formats, and a small local subset."""

from tasks.ct.composer import CTChoice, CTLocalChoice, CTLocalOpen, CTOpen

__all__ = ["CTChoice", "CTLocalChoice", "CTLocalOpen", "CTOpen"]
