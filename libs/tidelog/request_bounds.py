"""Limits on requests: timeouts, sizes, page sizes, and the name of the requester. Brokers, the
controller, the gateway, the client and the commands reject the same values. Pure functions.

Entries are bounded as well as bytes: an empty entry takes two bytes on the wire, and an object and
a lookup in a service. `record_limits` bounds the content of a batch."""

from __future__ import annotations

import re

from tidelog.errors import ErrorCode, TidelogError

MAX_TIMEOUT_MS = 300_000
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000
MAX_REQUESTER_LENGTH = 200
# The directory of a replica is named after topic, partition (5 digits), topic id (22) and, when
# set aside, a time (13). With the separators these are 243 characters; file systems allow 255.
MAX_TOPIC_NAME_LENGTH = 200
_WRONG_IN_TOPIC_NAME = re.compile(r"[^a-zA-Z0-9._-]")
# The intent that stores a manual assignment is one value of the metadata store.
MAX_ASSIGNED_PARTITIONS = 1_000

# Entries of any repeated field of a request, unless ENTRY_LIMITS has another limit for it.
MAX_ENTRIES_PER_REQUEST = 10_000
# Entries of one Produce, Fetch or DescribeProducers request. A broker handles this many without
# blocking its event loop for long.
MAX_PRODUCE_PARTITIONS = 1_000
MAX_PRODUCE_BATCHES = 1_000
MAX_FETCH_PARTITIONS = 1_000
MAX_DESCRIBE_PRODUCERS_PARTITIONS = 1_000
# Producers that one DescribeProducers request looks up, in all of its partitions together. A
# partition remembers as many unnamed producers.
MAX_DESCRIBED_PRODUCERS = 100_000
# Moves of one Reassign, MoveLeaders or ElectPreferredLeaders request. The controller plans them in
# one step.
MAX_MOVES_PER_REQUEST = 2_000
# Entries of all repeated fields of a request together, nested messages included. AddPartitions
# needs this many to name three replicas of each of MAX_ENTRIES_PER_REQUEST partitions.
MAX_ENTRIES_IN_ALL = 40_000
# Partitions and batches of a Produce request together.
MAX_PRODUCE_ENTRIES = MAX_PRODUCE_PARTITIONS + MAX_PRODUCE_BATCHES
# Keys of a topic's configuration in one request. Fewer than a hundred exist.
MAX_CONFIG_KEYS = 1_000
# Bytes of one string: a name, an id, a configuration value. Each has its own rule as well.
MAX_TEXT_BYTES = 4_096
# Bytes of a request on the wire: of Produce, which holds batches; of requests between brokers and
# controllers, which hold the states of all partitions of a broker. MAX_REQUEST_BYTES is the limit
# of all others.
MAX_PRODUCE_REQUEST_BYTES = 20 << 20
MAX_INTERNAL_REQUEST_BYTES = 32 << 20
# Bytes of all batches of a Produce request once they are decompressed. Checking them takes about a
# second, in which other requests for its partitions wait.
MAX_PRODUCE_DECODED_BYTES = 256 << 20
# Replicas that one broker may hold. The controller observes it in placements and moves.
MAX_REPLICAS_PER_BROKER = 50_000
# Replicas that one internal request names. A broker may exceed MAX_REPLICAS_PER_BROKER for a while,
# when replicas that leave it wait for replicas that arrive.
MAX_REPLICAS_PER_REQUEST = MAX_REPLICAS_PER_BROKER + 10_000
# Bytes of one entry of an internal request, unless ENTRY_BYTES_LIMITS has another limit for it.
MAX_INTERNAL_ENTRY_BYTES = 256 << 10
# Entries of all lists of a LeaderAndIsr request together, nested ones included. Each replica has
# its members, the members of a move, and its configuration.
MAX_LEADER_AND_ISR_ENTRIES = 35 * MAX_REPLICAS_PER_REQUEST
MAX_REQUEST_BYTES = 1 << 20
# Bytes of a request that a service keeps until its client ends the call, and of health checks. An
# address may have thousands of them.
MAX_KEPT_REQUEST_BYTES = 16 << 10
# Replicas of one partition: as many as the brokers of a cluster, and far more than needed.
MAX_REPLICAS_PER_PARTITION = 1_000
# Partitions that one ReportDisk request names.
MAX_FAILING_LEADERSHIPS = 1_000
# Ranges that one ReplicaFetch request reports; batches of one range, and segments that hold them;
# and bytes of their records, which a leader copies to replace what it cannot read. One batch may
# have as many bytes, which is the highest max_batch_bytes.
MAX_REPORTED_DIGESTS = 64
MAX_RANGE_BATCHES = 1 << 14
MAX_RANGE_CONTENT_BYTES = 16 << 20
# A batch header with the fields around it, or its summary, takes less; so does a segment's name.
_MAX_BATCH_HEADER_BYTES = 1 << 10
_RANGE_BATCH_BYTES = 256

# Limits by the field's full name, for every repeated field of a request at any depth.
ENTRY_LIMITS = {
    "tidelog.v1.ProduceRequest.partitions": MAX_PRODUCE_PARTITIONS,
    "tidelog.v1.ProducePartition.batches": MAX_PRODUCE_BATCHES,
    "tidelog.v1.FetchRequest.partitions": MAX_FETCH_PARTITIONS,
    "tidelog.v1.DescribeProducersRequest.partitions": MAX_DESCRIBE_PRODUCERS_PARTITIONS,
    "tidelog.v1.CreateTopicRequest.assignment": MAX_ASSIGNED_PARTITIONS,
    "tidelog.v1.CreateTopicRequest.config": MAX_CONFIG_KEYS,
    "tidelog.v1.AlterTopicConfigRequest.set": MAX_CONFIG_KEYS,
    "tidelog.v1.AlterTopicConfigRequest.unset": MAX_CONFIG_KEYS,
    "tidelog.v1.ReassignRequest.moves": MAX_MOVES_PER_REQUEST,
    "tidelog.v1.MoveLeadersRequest.moves": MAX_MOVES_PER_REQUEST,
    "tidelog.v1.ElectPreferredLeadersRequest.partitions": MAX_MOVES_PER_REQUEST,
    "tidelog.v1.LeaderAndIsrRequest.partitions": MAX_REPLICAS_PER_REQUEST,
    "tidelog.v1.LeaderAndIsrRequest.unreadable_topics": MAX_REPLICAS_PER_REQUEST,
    "tidelog.v1.ReplicaFetchRequest.partitions": MAX_REPLICAS_PER_REQUEST,
    "tidelog.v1.ReplicaFetchRequest.forgotten": MAX_REPLICAS_PER_REQUEST,
    "tidelog.v1.ReplicaFetchRequest.digests": MAX_REPORTED_DIGESTS,
    "tidelog.v1.RangeDigest.batches": MAX_RANGE_BATCHES,
    "tidelog.v1.RangeDigest.segments": MAX_RANGE_BATCHES,
    "tidelog.v1.RangeDigest.contents": MAX_RANGE_BATCHES,
    "tidelog.v1.PartitionState.replicas": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.PartitionState.isr": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.PartitionState.eligible": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.PartitionState.config": MAX_CONFIG_KEYS,
    "tidelog.v1.MovingReplicas.original": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.MovingReplicas.target": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.ReplicaAssignment.replicas": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.Move.original": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.Move.target": MAX_REPLICAS_PER_PARTITION,
    "tidelog.v1.ReportDiskRequest.led": MAX_FAILING_LEADERSHIPS,
    **dict.fromkeys(
        (
            "tidelog.v1.AddBrokersRequest.broker_ids",
            "tidelog.v1.AddPartitionsRequest.assignment",
            "tidelog.v1.AnnounceGatewayRequest.limited_clients",
            "tidelog.v1.AnnounceGatewayRequest.pressures",
            "tidelog.v1.DescribeBrokersRequest.broker_ids",
            "tidelog.v1.DescribeProducersRequest.producer_ids",
            "tidelog.v1.DescribeRecoveryRequest.choices",
            "tidelog.v1.DescribeRecoveryRequest.partitions",
            "tidelog.v1.DescribeReplicasRequest.partitions",
            "tidelog.v1.DescribeServiceRequest.in_isr",
            "tidelog.v1.DescribeTopicsRequest.topics",
            "tidelog.v1.LeaderAndIsrRequest.leaders",
            "tidelog.v1.ListOffsetsRequest.partitions",
            "tidelog.v1.ListOperationsRequest.kinds",
            "tidelog.v1.ListOperationsRequest.states",
            "tidelog.v1.MetadataRequest.topics",
            "tidelog.v1.NamedEpoch.partition_counts",
            "tidelog.v1.PartitionSelector.partitions",
            "tidelog.v1.RecoverPartitionsRequest.choices",
            "tidelog.v1.RecoverPartitionsRequest.partitions",
            "tidelog.v1.RemoveBrokersRequest.broker_ids",
            "tidelog.v1.ReportUnreachableLeadersRequest.leaders",
            "tidelog.v1.SetMaintenanceRequest.broker_ids",
            "tidelog.v1.SetReplicationFactorRequest.topics",
            "tidelog.v1.StopReplicaRequest.partitions",
            "tidelog.v1.WatchEventsRequest.kinds",
        ),
        MAX_ENTRIES_PER_REQUEST,
    ),
}
# Bytes of one entry in requests between brokers and controllers, by the field's full name.
ENTRY_BYTES_LIMITS = {
    "tidelog.v1.ReplicaFetchRequest.digests": MAX_RANGE_CONTENT_BYTES
    + MAX_RANGE_BATCHES * _RANGE_BATCH_BYTES,
    "tidelog.v1.RangeDigest.contents": MAX_RANGE_CONTENT_BYTES + _MAX_BATCH_HEADER_BYTES,
}


def entries_limit(field: str) -> int:
    """`field`: the field's full name."""
    return ENTRY_LIMITS.get(field, MAX_ENTRIES_PER_REQUEST)


def check_entries(field: str, count: int) -> None:
    """`field`: the field's full name. Raises INVALID_REQUEST."""
    limit = entries_limit(field)
    if count > limit:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{_short(field)} has {count} entries; a request has at most {limit}: send fewer",
        )


# Limits by the request's full name.
TOTAL_LIMITS = {
    "tidelog.v1.ProduceRequest": MAX_PRODUCE_ENTRIES,
    "tidelog.v1.ElectPreferredLeadersRequest": MAX_ENTRIES_PER_REQUEST,
    "tidelog.v1.LeaderAndIsrRequest": MAX_LEADER_AND_ISR_ENTRIES,
    # A follower lists the batches of only one range in a request.
    "tidelog.v1.ReplicaFetchRequest": (
        2 * MAX_REPLICAS_PER_REQUEST + MAX_REPORTED_DIGESTS + 3 * MAX_RANGE_BATCHES
    ),
}


def total_entries_limit(request: str) -> int:
    """Returns the limit on the entries of all repeated fields together. `request`: the request's
    full name."""
    return TOTAL_LIMITS.get(request, MAX_ENTRIES_IN_ALL)


def check_total_entries(request: str, count: int) -> None:
    """`request`: the request's full name. Raises INVALID_REQUEST."""
    limit = total_entries_limit(request)
    if count > limit:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{request.rpartition('.')[2]} has {count} entries or more in all its lists together; "
            f"it has at most {limit}: send several requests",
        )


def check_text(field: str, size_bytes: int) -> None:
    """`field`: the field's full name. Raises INVALID_REQUEST."""
    if size_bytes > MAX_TEXT_BYTES:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{_short(field)} has {size_bytes} bytes; it has at most {MAX_TEXT_BYTES}, a fixed "
            "limit",
        )


def check_request_bytes(method: str, size_bytes: int, limit: int) -> None:
    """Raises INVALID_REQUEST."""
    if size_bytes > limit:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a {method} request has {size_bytes} bytes; it has at most {limit}: send smaller ones",
        )


def entry_bytes_limit(field: str) -> int:
    """Returns the limit for a field of a request between brokers and controllers. `field`: the
    field's full name."""
    return ENTRY_BYTES_LIMITS.get(field, MAX_INTERNAL_ENTRY_BYTES)


def check_entry_bytes(field: str, size_bytes: int) -> None:
    """Checks an entry of a request between brokers and controllers. `field`: the field's full name.
    Raises INVALID_REQUEST."""
    limit = entry_bytes_limit(field)
    if size_bytes > limit:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"an entry of {_short(field)} has {size_bytes} bytes; it has at most {limit}",
        )


def _short(field: str) -> str:
    """Returns the name without the package.

    >>> _short("tidelog.v1.FetchRequest.partitions")
    'FetchRequest.partitions'
    """
    return ".".join(field.split(".")[-2:])


def check_timeout(timeout_ms: float) -> None:
    """Raises INVALID_REQUEST."""
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a timeout of {timeout_ms:.15g} ms is invalid; use 1 to {MAX_TIMEOUT_MS} ms",
        )


def check_topic_name(topic: str) -> None:
    """Raises INVALID_TOPIC_NAME. Names of internal topics pass."""
    if not topic:
        problem = "is empty"
    elif len(topic) > MAX_TOPIC_NAME_LENGTH:
        problem = f"has {len(topic)} characters"
    elif topic in (".", ".."):
        problem = f"{topic!r} would be a path"
    elif wrong := _WRONG_IN_TOPIC_NAME.search(topic):
        problem = f"{topic!r} contains {wrong.group()!r}"
    else:
        return
    raise TidelogError(
        ErrorCode.INVALID_TOPIC_NAME,
        f"the topic name {problem}; a name has 1 to {MAX_TOPIC_NAME_LENGTH} characters out of "
        "a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'",
    )


def page_size(asked: int) -> int:
    """Returns the page size to use. Larger values are reduced to MAX_PAGE_SIZE (google AIP-158);
    0 means unset. Raises INVALID_REQUEST.

    >>> page_size(0), page_size(7), page_size(5_000)
    (100, 7, 1000)
    """
    if asked < 0:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a page size of {asked} is invalid; use 1 to {MAX_PAGE_SIZE}, or leave it out",
        )
    return min(asked, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE


def check_requester(name: str, said_as: str = "requested_by") -> None:
    """Raises INVALID_REQUEST for a name that gRPC metadata cannot carry, or that does not belong
    into a log line. `said_as`: the name of the field or option, for the message."""
    if len(name) > MAX_REQUESTER_LENGTH or not (name.isascii() and name.isprintable()):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{said_as} {name[:40]!r} cannot be sent; give at most {MAX_REQUESTER_LENGTH} "
            "printable characters of ASCII",
        )
