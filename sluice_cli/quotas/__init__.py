"""`sluice quotas`: quotas of a cluster from the command line, by Kafka's own APIs 48 and 49."""
