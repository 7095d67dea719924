"""Fleets on virtual time."""
