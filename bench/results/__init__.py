"""Results on disk: one JSON file (row) and one Parquet file (records) for each cell."""
