"""The groups of `quota`, with the state that enforcement and the meter keep for each of them."""
