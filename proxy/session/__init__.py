"""Decides for one connection: bytes, numbers and times go in, values come out. Uses no socket and no clock."""
