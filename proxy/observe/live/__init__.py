"""The live page: its files, the stream of events that feeds it, 15 minutes of history, and what-if."""
