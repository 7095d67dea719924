"""Checks of the configuration beyond the types of its keys."""
