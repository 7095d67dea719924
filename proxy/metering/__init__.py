"""Writes every decision to files: the loop records it, a thread writes segments, a child process converts them to Parquet."""
