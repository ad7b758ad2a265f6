"""Results on disk: for each cell a JSON file with its `ResultRow`, and a Parquet file with a record per question."""
