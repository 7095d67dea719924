"""Everything that needs Spark: sessions, tasks, and the transformations that run on them."""
