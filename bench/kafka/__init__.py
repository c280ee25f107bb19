"""Kafka, from its artifacts, for the benches that compare it with Tidelog."""
