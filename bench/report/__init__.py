"""Results -> tables; a pure function of result rows that never runs a model."""
