"""The client of Sluice's admin port, and the options that name the port."""
