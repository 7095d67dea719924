"""Sockets, timers and back-pressure. The session takes every decision."""
