"""Protection of a run from its plugins: methods of files run in spawned processes, others beside a watched head."""
