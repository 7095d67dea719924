"""The quota store in a compacted topic."""
