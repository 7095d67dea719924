"""What the tables contain: columns, sums that are checked, and the limits of signs."""
