"""The format of the metering files: what `proxy` writes and `pipeline` reads. Each file is loaded alone; only `tables` needs Arrow."""
