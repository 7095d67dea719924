"""The commands of `sluice meter`: options in, lines and an exit code out. They import what they need when they run."""
