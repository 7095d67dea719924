"""Messages that Sluice parses, one file for each API. All other messages are forwarded without parsing."""
