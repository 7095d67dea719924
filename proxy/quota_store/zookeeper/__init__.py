"""Quotas in ZooKeeper, as brokers before KRaft keep them."""
