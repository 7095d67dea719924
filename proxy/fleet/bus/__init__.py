"""The bus that carries messages between the members of a fleet."""
