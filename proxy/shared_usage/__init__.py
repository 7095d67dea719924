"""Usage of quota groups that the workers of one host share, in one row of shared memory for each group."""
