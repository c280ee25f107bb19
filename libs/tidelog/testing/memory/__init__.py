"""What a `MemoryBroker` consists of: the broker's own request handlers and partitions, with logs
and metadata in memory and a small AdminService."""
