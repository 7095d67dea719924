"""Usage that worker processes of one machine share: one row of memory for each quota group."""
