"""The command line, `bench`."""
