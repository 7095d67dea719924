"""The two sockets of a connection."""
