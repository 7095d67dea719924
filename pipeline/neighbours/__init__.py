"""Finds loud neighbours: clients whose load makes others slower, or makes them wait. Needs no Spark."""
