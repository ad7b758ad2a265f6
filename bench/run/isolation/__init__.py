"""Protect a run from its plugins: those of files run in child processes, others mustn't change the output head."""
