"""Listening ports, and the checks before a connection is served."""
