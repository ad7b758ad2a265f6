"""One module for each group of faults: `TITLE`, and `cases(folder)`, which yields `Case`s in a fixed order."""
