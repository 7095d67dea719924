"""Usage that the workers of one host share: one row of memory for each quota group."""
