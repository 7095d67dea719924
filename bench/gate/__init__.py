"""The limits that a release has to hold."""
