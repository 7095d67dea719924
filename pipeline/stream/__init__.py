"""What a stream lands and remembers; needs no Spark."""
