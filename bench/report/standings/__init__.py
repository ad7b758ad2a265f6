"""Statistics of the lines of a table: means, intervals, significance tests, ranks, and their cache."""
