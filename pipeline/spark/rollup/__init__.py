"""The roll-up on Spark."""
