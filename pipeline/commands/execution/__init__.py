"""What all commands share: options, executors, output and exit codes."""
