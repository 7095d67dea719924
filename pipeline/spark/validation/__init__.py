"""The validator on Spark."""
