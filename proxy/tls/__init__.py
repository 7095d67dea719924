"""TLS of our own over plain transports, and who a certificate says its owner is."""
