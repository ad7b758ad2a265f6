"""Protect a run from its plugins: methods of plugin files run in child processes, others mustn't change the model."""
