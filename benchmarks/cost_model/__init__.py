"""Hours that the whole comparison takes on a large accelerator: computed from dry passes of the real code."""
