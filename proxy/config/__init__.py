"""The configuration: its keys, its reader and its checks."""
