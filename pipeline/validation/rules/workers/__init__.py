"""What workers that share usage say of each other: rules over the file sets of all of them."""
