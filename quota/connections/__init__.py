"""Quotas on connections: per address and listener."""
