"""Sums of what services and etcd show to Prometheus. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", re.M)


def sums(text: str) -> Mapping[str, float]:
    """By name, over all series of it."""
    found: dict[str, float] = {}
    for name, _, value in _SAMPLE.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found


class StoreWork(NamedTuple):
    """What etcd has done since its start: transactions that clients asked for, keys that were
    written, events that watchers were sent, syncs of its log, bytes that it sent and got."""

    transactions: float
    puts: float
    watch_events: float
    syncs: float
    sent_bytes: float
    received_bytes: float

    def since(self, before: StoreWork) -> StoreWork:
        return StoreWork(*(now - then for now, then in zip(self, before, strict=True)))

    def for_each(self, changes: int) -> dict[str, float]:
        """Of so many changed partitions."""
        return {name: value / changes for name, value in self._asdict().items()}


def store_work(text: str) -> StoreWork:
    """Of etcd's metrics. Raises `KeyError` for another program's."""
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
