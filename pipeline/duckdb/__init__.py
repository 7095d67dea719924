"""The roll-up in this process, by DuckDB: the same tables as those of `pipeline.spark.rollup`, without Java."""
