"""Quotas beside those of a real broker."""
