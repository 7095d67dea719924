"""Builds what a release consists of; `make release` runs it. No file of it is in the wheel."""
