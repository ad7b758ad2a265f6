"""Compute and cache the standings of a table: means, intervals, tests and ranks of its methods."""
