"""`sluice top`: the live page in a terminal."""
