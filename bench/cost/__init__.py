"""Cost per request and per connection."""
