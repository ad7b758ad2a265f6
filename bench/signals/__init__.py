"""Signals: quantities that methods read from the frozen model. Each is computed once, then loaded from the store."""
