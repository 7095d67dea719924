"""Memory under attack."""
