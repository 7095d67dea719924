"""Tables of Apache Iceberg, by pyiceberg. Only the commands that name a catalog import this."""
