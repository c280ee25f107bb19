"""`make bench`: throughput, reading, latency and durability on one cluster."""
