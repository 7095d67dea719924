"""Writes every decision to files: the event loop records it, a thread writes segments, a child process converts them to Parquet."""
