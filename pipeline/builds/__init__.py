"""Tables of a roll-up whose rows have a build: what Iceberg and Delta have in common."""
