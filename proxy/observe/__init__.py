"""What operators see: metrics, health, the state of quotas, and a watchdog over the event loop. It only reads."""
