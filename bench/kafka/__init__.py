"""Kafka, from its artifacts, for the benches that measure it beside Tidelog."""
