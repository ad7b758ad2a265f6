"""Protect a run from its plugins: plugin files run in child processes, and the output head is checked for changes."""
