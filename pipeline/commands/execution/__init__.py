"""Shared by all commands: options, executors, output and exit codes."""
