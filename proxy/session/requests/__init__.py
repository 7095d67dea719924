"""Requests of a client."""
