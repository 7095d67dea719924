"""The numbers that a release has to hold."""
