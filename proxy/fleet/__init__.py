"""Several Sluices as a fleet: each publishes its usage, and records that of the others, so that all enforce one budget."""
