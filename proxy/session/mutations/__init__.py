"""Controller mutations: requests that make or delete topics and partitions are judged topic by topic before they go on."""
