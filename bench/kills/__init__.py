"""Sluice killed in mid-traffic, in one process or in several, and the accounts settled."""
