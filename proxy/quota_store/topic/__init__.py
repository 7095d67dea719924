"""Quotas in a compacted topic."""
