"""The names of peers, of pieces of work, and of their results. Pure."""

from __future__ import annotations

from collections.abc import Mapping

TIDELOG, KAFKA, KAFKA_TOOLS, NATS = "Tidelog", "Kafka", "Kafka's tools", "NATS"
PRODUCE_ALL, PRODUCE_ONE = "produce, acks=all", "produce, acks=1"
ONE_IN_FLIGHT, TO_CONSUMER = "one in flight, to ack", "one in flight, to consumer"
RECORDS, BATCHES = "consume records in Python", "consume batches"
# The units of results; others are percentiles, in milliseconds.
SPEED = "records/s"

Figures = Mapping[str, float]
