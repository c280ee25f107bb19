"""Fixed limits, from the constants that the services and clients check."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog import request_bounds as bounds
from tidelog.record_limits import (
    HIGHEST_MAX_BATCH_BYTES,
    HIGHEST_MAX_BATCH_RECORDS,
    LOWEST_MAX_BATCH_RECORDS,
    MAX_READ_HEADERS,
    MAX_READ_HEADERS_AT_ONCE,
    MAX_READ_HEADERS_PER_RECORD,
    RECORD_LIMITS,
)
from tidelog_admin_api.limits import MAX_JSON_ENTRIES
from tidelog_docs.markdown import cell, code, table

# Limits with one value, by what they limit.
RECORDS: Mapping[str, str] = {
    "key": f"{RECORD_LIMITS.max_key_bytes:,} bytes",
    "name of a header": f"{RECORD_LIMITS.max_header_name_bytes:,} bytes in UTF-8",
    "headers of a record": f"{RECORD_LIMITS.max_headers_per_record:,}",
    "headers of a batch": f"{RECORD_LIMITS.max_batch_headers:,}",
    "records of a batch": (
        f"{RECORD_LIMITS.max_batch_records:,}; a topic's `max_batch_records` is "
        f"{LOWEST_MAX_BATCH_RECORDS:,} to {HIGHEST_MAX_BATCH_RECORDS:,}"
    ),
    "bytes of a batch, compressed": f"{HIGHEST_MAX_BATCH_BYTES:,}; a topic's `max_batch_bytes`",
    "bytes of a batch, decompressed": f"{RECORD_LIMITS.max_decoded_bytes:,}",
    "headers of a batch that is read": (
        f"{MAX_READ_HEADERS:,} in slices, {MAX_READ_HEADERS_AT_ONCE:,} at once, "
        f"{MAX_READ_HEADERS_PER_RECORD:,} of a record; for batches that an earlier release or "
        "another writer wrote"
    ),
}
FIELDS: Mapping[str, str] = {
    "text: a name, an id, a configuration value": f"{bounds.MAX_TEXT_BYTES:,} bytes",
    "topic name": f"{bounds.MAX_TOPIC_NAME_LENGTH:,} characters",
    "name of a requester": f"{bounds.MAX_REQUESTER_LENGTH:,} characters",
    "timeout of a request": f"{bounds.MAX_TIMEOUT_MS:,} ms",
    "page of a list": f"{bounds.MAX_PAGE_SIZE:,}; default {bounds.DEFAULT_PAGE_SIZE:,}",
    "configuration keys": f"{bounds.MAX_CONFIG_KEYS:,}",
    "partitions of a manual assignment": f"{bounds.MAX_ASSIGNED_PARTITIONS:,}",
    "moves of replicas or leaders": f"{bounds.MAX_MOVES_PER_REQUEST:,}",
    "partitions of DescribeProducers": f"{bounds.MAX_DESCRIBE_PRODUCERS_PARTITIONS:,}",
    "producers of DescribeProducers": f"{bounds.MAX_DESCRIBED_PRODUCERS:,}",
    "leaderships of ReportDisk": f"{bounds.MAX_FAILING_LEADERSHIPS:,}",
    "digests of ReplicaFetch": f"{bounds.MAX_REPORTED_DIGESTS:,}",
    "replicas of a broker": f"{bounds.MAX_REPLICAS_PER_BROKER:,}",
}


def requests() -> str:
    entries = f"{bounds.MAX_ENTRIES_PER_REQUEST:,}"
    return table(
        ("request", "bytes", "entries of one list", "entries of all lists together"),
        (
            (
                "Produce",
                _mib(bounds.MAX_PRODUCE_REQUEST_BYTES),
                f"{bounds.MAX_PRODUCE_PARTITIONS:,} partitions; {bounds.MAX_PRODUCE_BATCHES:,} "
                "batches of a partition",
                f"{bounds.MAX_PRODUCE_ENTRIES:,} partitions and batches together",
            ),
            (
                "Fetch",
                _mib(bounds.MAX_REQUEST_BYTES),
                f"{bounds.MAX_FETCH_PARTITIONS:,} partitions",
                f"{bounds.MAX_ENTRIES_IN_ALL:,}",
            ),
            (
                "WatchEvents, health checks, reflection",
                f"{bounds.MAX_KEPT_REQUEST_BYTES >> 10:,} KiB",
                entries,
                f"{bounds.MAX_ENTRIES_IN_ALL:,}",
            ),
            (
                "any other request of a client",
                _mib(bounds.MAX_REQUEST_BYTES),
                f"{entries}; {bounds.MAX_REPLICAS_PER_PARTITION:,} replicas of a partition",
                f"{bounds.MAX_ENTRIES_IN_ALL:,}",
            ),
            (
                "among brokers and controllers",
                _mib(bounds.MAX_INTERNAL_REQUEST_BYTES),
                f"{entries}; {bounds.MAX_REPLICAS_PER_REQUEST:,} replicas",
                f"{bounds.MAX_LEADER_AND_ISR_ENTRIES:,}",
            ),
            (
                "to the gateway (JSON)",
                code("max_body_bytes"),
                f"{code('maxItems')} of each list",
                f"{MAX_JSON_ENTRIES:,} entries of lists and objects",
            ),
        ),
    )


def entry_sizes() -> str:
    return table(
        ("entry of a request among brokers and controllers", "limit"),
        (
            ("any", f"{bounds.MAX_INTERNAL_ENTRY_BYTES >> 10:,} KiB"),
            (
                "a range that a leader copies because its own is damaged",
                f"{_mib(bounds.MAX_RANGE_CONTENT_BYTES)} of records and "
                f"{bounds.MAX_RANGE_BATCHES:,} batches",
            ),
        ),
    )


def listed(limits: Mapping[str, str]) -> str:
    return table(("item", "limit"), ((cell(item), limit) for item, limit in limits.items()))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
