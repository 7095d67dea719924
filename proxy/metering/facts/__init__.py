"""The content of segments other than decisions."""
