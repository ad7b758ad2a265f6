"""Protection of a run from its plugins: methods of files live in processes of their own, the others are watched."""
