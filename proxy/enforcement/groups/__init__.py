"""Quota groups with the state that enforcement and the meter keep for each group."""
