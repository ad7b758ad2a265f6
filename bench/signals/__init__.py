"""Measured once: what methods read of the frozen model, computed or taken from the store."""
