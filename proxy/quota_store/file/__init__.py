"""Quotas in a file."""
