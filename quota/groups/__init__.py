"""Clients that share one quota."""
