"""Rules about workers that share usage, over the file sets of all of them."""
