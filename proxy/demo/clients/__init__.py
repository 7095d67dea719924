"""The clients of the demo."""
