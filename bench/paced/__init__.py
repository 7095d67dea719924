"""Paced enforcement: the schedule of ADR 12, and its simulation."""
