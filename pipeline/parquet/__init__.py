"""Parquet files of metering: what is checked when a file is opened, and small files, which are read once."""
