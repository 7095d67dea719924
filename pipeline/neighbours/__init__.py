"""Finds noisy neighbours: clients with a load that makes other clients slower or makes them wait. Needs no Spark."""
