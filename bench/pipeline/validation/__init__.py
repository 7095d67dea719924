"""`sluice meter validate` as a command, on the files of several processes that share usage."""
