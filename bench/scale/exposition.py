"""Sums of the metrics of services and etcd. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", re.M)


def sums(text: str) -> Mapping[str, float]:
    """Returns the sum of each metric over all of its series."""
    found: dict[str, float] = {}
    for name, _, value in _SAMPLE.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found


class StoreWork(NamedTuple):
    """The work of etcd since its start: transactions of clients, written keys, events sent to
    watchers, syncs of its log, bytes sent and received."""

    transactions: float
    puts: float
    watch_events: float
    syncs: float
    sent_bytes: float
    received_bytes: float

    def since(self, before: StoreWork) -> StoreWork:
        return StoreWork(*(now - then for now, then in zip(self, before, strict=True)))

    def for_each(self, changes: int) -> dict[str, float]:
        """Returns the work for each of `changes` changed partitions."""
        return {name: value / changes for name, value in self._asdict().items()}


def store_work(text: str) -> StoreWork:
    """Parses etcd's metrics. Raises `KeyError` for those of another program."""
    found = sums(text)
    transactions = sum(
        float(value)
        for name, labels, value in _SAMPLE.findall(text)
        if name == "grpc_server_handled_total" and 'grpc_method="Txn"' in labels
    )
    return StoreWork(
        transactions,
        found["etcd_mvcc_put_total"],
        found["etcd_debugging_mvcc_events_total"],
        found["etcd_disk_wal_fsync_duration_seconds_count"],
        found["etcd_network_client_grpc_sent_bytes_total"],
        found["etcd_network_client_grpc_received_bytes_total"],
    )
