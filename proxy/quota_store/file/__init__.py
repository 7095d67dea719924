"""The quota store in a file."""
