"""The commands of `sluice meter`. A command imports its modules when it runs."""
