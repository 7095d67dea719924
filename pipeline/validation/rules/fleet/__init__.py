"""Rules about the members of a fleet, over the file sets of all of them."""
