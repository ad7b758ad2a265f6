"""Tasks, one module per data set; the tasks of a file in this folder are registered automatically."""
