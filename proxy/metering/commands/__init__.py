"""Commands of `sluice meter` that change metering files, or copy them. Commands that read are in `pipeline`."""
