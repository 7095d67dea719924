"""The estimate of request-handler time."""
