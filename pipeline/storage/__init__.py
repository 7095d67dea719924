"""Directories to read: on this machine, or in an object store."""
