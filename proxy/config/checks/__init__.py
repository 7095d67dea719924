"""What a configuration must hold beyond the types of its keys."""
