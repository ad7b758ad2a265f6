"""Worth of the rows of a table: means, intervals, tests, ranks, and their cache."""
