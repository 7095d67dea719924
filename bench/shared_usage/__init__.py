"""What it costs to count with other workers, and how exact it is."""
