"""Recomputes every decision of packed samples in numpy. Needs no Spark and opens no file."""
