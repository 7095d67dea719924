"""Several members of a fleet with one budget."""
