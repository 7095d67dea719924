"""The sections of the configuration file."""
