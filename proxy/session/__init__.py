"""What decides: bytes, numbers and times go in, values come out. No socket, no clock."""
