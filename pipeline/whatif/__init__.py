"""Computes what another quota file would have done with the recorded decisions. Needs no Spark."""
