"""The event loop's side of metering: decisions and usage as they are noted."""
