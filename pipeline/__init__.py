"""What metering files say: who used what, was every throttle right, what would another quota file do."""
