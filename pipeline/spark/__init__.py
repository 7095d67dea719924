"""What needs Spark: sessions, and the transformations that run on them."""
