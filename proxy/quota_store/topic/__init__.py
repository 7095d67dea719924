"""The store in a compacted topic."""
