"""Creates all parts from the configuration, reloads them and ends them."""
