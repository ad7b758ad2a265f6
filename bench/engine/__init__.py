"""Engines: worker processes and Ray actors that compute the shards of a run."""
