"""Engines: objects that compute the shards of a run in worker processes, on this machine or on a Ray cluster."""
