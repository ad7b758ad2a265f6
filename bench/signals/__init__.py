"""Signals: the quantities that methods read of the frozen model, each computed once and then loaded from the store."""
