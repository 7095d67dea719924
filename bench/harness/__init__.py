"""What benches share."""
