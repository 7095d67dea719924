"""What a client sends."""
