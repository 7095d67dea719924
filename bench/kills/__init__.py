"""Sluice is killed under traffic, as one process or as several, and records and decisions are checked afterwards."""
