"""What the rows of a table are worth: means, intervals, tests, ranks, and their cache."""
