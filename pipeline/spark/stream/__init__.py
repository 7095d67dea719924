"""The stream on Spark."""
