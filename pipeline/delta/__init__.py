"""Tables of Delta Lake, by the package deltalake. Only `--sink delta` imports this."""
