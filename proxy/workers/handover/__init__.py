"""Handover between supervisors: the socket where they connect, the messages, and the ports and state that are handed over."""
