"""The groups of `quota`, with what enforcement and the meter keep at each of them."""
