"""Decisions for one connection: bytes, numbers and times are arguments, decisions are return values. No sockets, no clock."""
