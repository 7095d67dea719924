"""Merges small file sets, so that readers open fewer files."""
