"""Tables of a roll-up whose rows have a build, written by Spark's own writers of Iceberg and Delta."""
