"""Quotas compared with those of a real broker."""
