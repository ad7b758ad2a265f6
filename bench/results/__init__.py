"""Rows on disk: one JSON file and one Parquet file for each cell."""
