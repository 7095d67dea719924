"""The audit log: every change of a quota, in a chain of digests."""
