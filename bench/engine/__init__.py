"""Engines: who computes the shards of a run besides the run's own process."""
