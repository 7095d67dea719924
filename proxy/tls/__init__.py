"""TLS over plain transports, and the principal of a certificate."""
