"""A topic with more partitions on each broker than one request may name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark.running import Running
from tidelog.client import SyncAdmin
from tidelog.request_bounds import MAX_DESCRIBE_PRODUCERS_PARTITIONS, MAX_FETCH_PARTITIONS

BROKERS = 3
MAX_NAMED = max(MAX_FETCH_PARTITIONS, MAX_DESCRIBE_PRODUCERS_PARTITIONS)
PARTITIONS = BROKERS * (MAX_NAMED + 50)
# The partitions that tests fill: few, because each costs a Spark task; some lie beyond every limit.
FILLED = (0, 1, 2, PARTITIONS - 2, PARTITIONS - 1)


@contextmanager
def wide_topic(cluster: Running) -> Iterator[str]:
    """The topic; it is deleted at the end, so that it costs other tests nothing."""
    topic = f"wide-{next(cluster.names)}"
    cluster.create(topic, PARTITIONS, replicas=1)
    with SyncAdmin(cluster.bootstrap) as admin:
        led = [partition.leader for partition in admin.describe_topic(topic).partitions]
        assert min(map(led.count, led)) > MAX_NAMED
        try:
            yield topic
        finally:
            admin.delete_topic(topic)
