"""Requests that are complete before they are forwarded, and tokens of logins."""
