"""Reads published tables, for summaries and reports."""
