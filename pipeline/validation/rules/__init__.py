"""Rules of the validator, one per file."""
