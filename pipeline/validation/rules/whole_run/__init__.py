"""Rules over whole runs. Each gets the file sets in decision order, one after the other, and keeps what it needs of each group."""
