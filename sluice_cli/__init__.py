"""The command line: `sluice`, above the proxy and the pipeline."""
