"""One rule of the validator in each file."""
