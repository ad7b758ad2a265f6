"""Protect a run from its plugins: methods of files run in child processes, others with a check of the output head."""
