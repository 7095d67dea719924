"""Every change of a quota, in a chain of digests."""
