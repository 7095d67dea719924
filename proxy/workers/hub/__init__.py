"""The process of the fleet's hub, and the supervisor's view of it."""
