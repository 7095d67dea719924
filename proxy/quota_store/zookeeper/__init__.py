"""The quota store in ZooKeeper, in the format of brokers before KRaft."""
