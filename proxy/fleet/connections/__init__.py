"""The exchange of connections between the members of a fleet: what a member publishes, and what it knows of the others."""
