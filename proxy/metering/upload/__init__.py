"""Copies finished file sets to an object store, in a child process."""
