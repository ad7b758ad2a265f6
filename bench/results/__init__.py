"""Results on disk: each cell has a JSON file with its `ResultRow`, and a Parquet file with one row per question."""
