"""Standings: statistics of the lines (methods) of a table, i.e. means, intervals, tests and ranks, and their cache."""
