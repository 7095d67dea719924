"""Recomputes every decision of packed samples in numpy, without Spark and without opening files."""
