"""Paced enforcement: groups with a schedule, and the order of their waiting requests."""
