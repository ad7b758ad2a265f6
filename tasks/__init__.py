"""One module per data set; dropping a file into this folder registers its tasks."""
