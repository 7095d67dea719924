"""Messages that Sluice parses, one file or folder for each API. All other messages are forwarded without parsing."""
