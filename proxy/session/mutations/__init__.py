"""Controller mutations: requests that create or delete topics and partitions are checked topic by topic before they are forwarded."""
