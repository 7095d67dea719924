"""Computes the effect of another quota file on the recorded decisions, without Spark."""
