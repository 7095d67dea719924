"""The configuration: what it may say, how it is read, and what is wrong with it."""
