"""From segments to Parquet files."""
