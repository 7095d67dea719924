"""The state and results of a stream. Needs no Spark."""
