"""The principal of a connection."""
