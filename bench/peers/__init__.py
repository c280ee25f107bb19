"""`make bench-peers`: the same work on Tidelog, Kafka and NATS JetStream, in turn."""
