"""Who the client of a connection is."""
