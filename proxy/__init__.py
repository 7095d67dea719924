"""Sluice itself: composes `protocol` and `quota`, owns all I/O."""
