"""The part of metering that runs on the event loop: records decisions and usage."""
