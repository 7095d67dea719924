"""One supervisor takes the place of another: where they meet, what they say, and what changes hands."""
