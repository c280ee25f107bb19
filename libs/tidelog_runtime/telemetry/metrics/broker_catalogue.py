"""The metrics of a broker.

A broker may hold 10,000 partitions. Totals count all of them. Only MAX_PARTITION_SERIES of them
have series of their own: first unhealthy ones, then lagging ones, then the largest.
`tidelog_partitions_without_series` counts the unhealthy and lagging ones without series.
"""

from __future__ import annotations

from itertools import product

from tidelog.errors import ErrorCode
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_runtime.telemetry.metrics.metric import counter, gauge
from tidelog_runtime.telemetry.metrics.scrub_catalogue import SCRUB_METRICS
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    CLIENT_REJECTIONS,
    CLIENT_REQUESTS,
    MAX_OTHER_SERIES,
    QUEUE_DEPTH,
    REQUEST_DURATION,
    REQUESTS_REJECTED,
    SERVICE_METRICS,
    STATE_CHANGE_DURATION,
)

# Three lag metrics have a series for each follower of these; MAX_LAG_SERIES bounds each metric.
MAX_PARTITION_SERIES = 50
MAX_LAG_SERIES = 100
MAX_TOPIC_SERIES = 50
# Further brokers have no series; their partitions count in the totals.
MAX_PEER_SERIES = 50
# Brokers to which moves add replicas at the same time.
MAX_RECEIVER_SERIES = 35
# Brokers whose clocks are compared with this one's; further ones are not shown.
MAX_HEARD_CLOCKS = 16

PRODUCE, FETCH = "produce", "fetch"
REPLICA_OUT, REPLICA_IN = "replica_out", "replica_in"
FLOWS = (PRODUCE, FETCH, REPLICA_OUT, REPLICA_IN)
TOPIC_FLOWS = (PRODUCE, FETCH)
REQUESTS = (
    (PRODUCE, "none"),
    (PRODUCE, "leader"),
    (PRODUCE, "all"),
    ("fetch", ""),
    ("fetch_idle", ""),
    ("replica_fetch", ""),
    ("replica_fetch_idle", ""),
    ("list_offsets", ""),
    ("metadata", ""),
    ("init_producer_id", ""),
    ("describe_producers", ""),
)
REJECTING_REQUESTS = (PRODUCE, FETCH, "replica_fetch", "list_offsets", "init_producer_id")
# The other codes are for administrators, from the controller.
REFUSALS = (
    *(code.name for code in ErrorCode if code < ErrorCode.INVALID_TOPIC_NAME),
    ErrorCode.STALE_BROKER_EPOCH.name,
    ErrorCode.METADATA_STORE_UNAVAILABLE.name,
)
# Produces that wait for replicas or the disk; partitions that fetches wait for; partitions whose
# ISR has to be evaluated or written; logs that have to be synced.
QUEUES = ("produces", "fetched_partitions", "isr_updates", "log_syncs")
ISR_CAUSES = tuple(
    cause.value for cause in (Cause.LAG_TIME, Cause.LAG_BYTES, Cause.CAUGHT_UP, Cause.NONE)
)
REPLICA_KINDS = tuple(
    kind.value
    for kind in (Kind.CREATE, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER, Kind.STOP, Kind.DELETE)
)
BROKER_TIMED_CHANGES = (
    *product(REPLICA_KINDS, (Stage.RECEIVED.value, Stage.COMPLETED.value)),
    (Kind.ISR_SHRINK.value, Stage.COMPLETED.value),
    (Kind.ISR_EXPAND.value, Stage.COMPLETED.value),
)
LAST_WRITES = RECENT_WRITE, OLDER_WRITE = ("recent", "older")

REFUSED = REQUESTS_REJECTED.of(product(REJECTING_REQUESTS, REFUSALS), MAX_OTHER_SERIES)

# The broker and its replicas.
REGISTERED = gauge(
    "tidelog_broker_registered",
    "1 while this broker is registered in etcd, as far as it knows.",
    "At 0 it leads nothing new: its log names what keeps it from registering.",
)
HAS_FULL_STATE = gauge(
    "tidelog_broker_has_full_state",
    "1 once a controller has sent this broker its full state.",
    "At 0 for long: check whether a controller is active and reaches this broker.",
)
REPLICAS = gauge(
    "tidelog_broker_replicas",
    "Replicas that this broker holds.",
    "If brokers differ much, place new partitions on the emptier ones.",
)
LEADERS = gauge(
    "tidelog_broker_leaders",
    "Partitions that this broker leads.",
    "If brokers differ much, find leaders that are not the preferred ones.",
)
LEADERLESS = gauge(
    "tidelog_broker_leaderless_replicas",
    "Replicas here whose partition has no leader, as far as this broker knows.",
    "Run `tidelog explain`: it names the last in-sync broker, and when it died.",
)
OUT_OF_SERVICE = gauge(
    "tidelog_broker_out_of_service_replicas",
    "Replicas here that are damaged, and neither lead nor follow before they are repaired.",
    "Check replica_damaged in this broker's log, and check the disk if it lasts.",
)
UNDER_REPLICATED = gauge(
    "tidelog_broker_under_replicated_partitions",
    "Partitions led here whose ISR lacks a replica; while one is moved, its original ones count.",
    "Run `tidelog explain`: it names the replicas that are missing, and why.",
)
UNDER_MIN_ISR = gauge(
    "tidelog_broker_under_min_isr_partitions",
    "Partitions led here whose ISR is below min ISR: acks=all is rejected, the high watermark is "
    "stalled.",
    "Bring replicas back at once; `tidelog explain` names them.",
)
AT_MIN_ISR = gauge(
    "tidelog_broker_at_min_isr_partitions",
    "Partitions led here whose ISR is at min ISR, and lacks a replica: the next loss stops writes.",
    "Bring the missing replicas back before any other broker is stopped.",
)
HW_STALLED = gauge(
    "tidelog_broker_hw_stalled_partitions",
    "Partitions led here in which records wait and the high watermark is stalled.",
    "Run `tidelog explain`: it names the follower that holds it back, and why.",
)
UNCOMMITTED_RECORDS = gauge(
    "tidelog_broker_uncommitted_records",
    "Records between high watermark and log end, over all partitions led here.",
    "If it only grows, check tidelog_follower_max_lag_seconds.",
)
PARTITIONS_WITHOUT_SERIES = gauge(
    "tidelog_partitions_without_series",
    "Unhealthy or lagging partitions that have no series of their own, so that scrapes stay small.",
    "Run `tidelog explain` for all of them.",
)

# Replication, as leaders measure it.
LAG_RECORDS = gauge(
    "tidelog_replication_lag_records",
    "Records that a follower lacks (at least: those since the leader epoch began, where it has "
    "not fetched in it); the worst partitions only.",
    "Check the follower's event loop, disk and network; `tidelog explain broker N` reports more.",
    labels=("topic", "partition", "follower"),
    bound=MAX_LAG_SERIES,
)
LAG_BYTES = gauge(
    "tidelog_replication_lag_bytes",
    "Bytes that a follower lacks, about (at least: those since the leader epoch began, where it "
    "has not fetched in it); the worst partitions only.",
    "Divide by tidelog_data_bytes_total's rate of replica_in to see when it will be there.",
    labels=("topic", "partition", "follower"),
    bound=MAX_LAG_SERIES,
)
LAG_SECONDS = gauge(
    "tidelog_replication_lag_seconds",
    "Age of the oldest record that a follower lacks (at least: of the oldest since the leader "
    "epoch began, where it has not fetched in it); the worst partitions only.",
    "Beyond replica_lag_time_max_ms the follower leaves the ISR: `tidelog explain broker N` "
    "says why it is slow.",
    labels=("topic", "partition", "follower"),
    bound=MAX_LAG_SERIES,
)
FOLLOWER_LAG_RECORDS = gauge(
    "tidelog_follower_lag_records",
    "Records that a follower lacks, over all partitions led here; at least those since the "
    "leader epoch began, where it has not fetched in it.",
    "If one broker lags behind every leader, check that broker.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_LAG_BYTES = gauge(
    "tidelog_follower_lag_bytes",
    "Bytes that a follower lacks, over all partitions led here; at least those since the "
    "leader epoch began, where it has not fetched in it.",
    "Compare with the network between the two brokers.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_MAX_LAG_SECONDS = gauge(
    "tidelog_follower_max_lag_seconds",
    "Age of the oldest record that a follower lacks, in the partitions led here in which it was "
    "caught up longest ago; at least that of the oldest since the leader epoch began, where it "
    "has not fetched in it.",
    "Check the follower's process (paused, dead?), disk and network.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_LAGGING_PARTITIONS = gauge(
    "tidelog_follower_lagging_partitions",
    "Partitions led here in which a follower has not been caught up for a second.",
    "One: check that partition's replica. All: check the broker.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_OUT_OF_ISR = gauge(
    "tidelog_follower_out_of_isr_partitions",
    "Partitions led here in whose ISR a follower is missing.",
    "Run `tidelog explain broker N`.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_FETCH_AGE = gauge(
    "tidelog_follower_fetch_age_seconds",
    "Time since a follower's last fetch from this leader, or since the epoch began without one.",
    "Above a few seconds the follower is dead, paused or cut off from here.",
    labels=("follower",),
    bound=MAX_PEER_SERIES,
)
FOLLOWER_ADDING = gauge(
    "tidelog_follower_adding_partitions",
    "Partitions led here to which a move adds a follower that is not in sync yet.",
    "If it does not fall, check whether tidelog_move_sent_bytes_total grows; `tidelog explain` "
    "says why not.",
    labels=("follower",),
    bound=MAX_RECEIVER_SERIES,
)
FOLLOWER_ADDING_BYTES = gauge(
    "tidelog_follower_adding_lag_bytes",
    "Bytes that such a follower has yet to copy, about, over all of these partitions.",
    "Divide by the rate of tidelog_move_sent_bytes_total to see when it will have them.",
    labels=("follower",),
    bound=MAX_RECEIVER_SERIES,
)
MOVE_SENT_BYTES = counter(
    "tidelog_move_sent_bytes_total",
    "Bytes of records that this leader sent to followers that moves add.",
    "Compare with the bound on moves: `tidelog` sets it while they run.",
    labels=("follower",),
    bound=MAX_RECEIVER_SERIES,
)
CLOCK_SKEW = gauge(
    "tidelog_clock_skew_seconds",
    "By how much another broker's clock is ahead of this one's, as its replica fetches and "
    "answers carry it; negative: behind.",
    "Beyond 5 s either way correct the clocks (`chronyc tracking`): timestamps, retention by time "
    "and the order of events depend on them. A broker that most others are over 60 s ahead of "
    "dates the records that it leads by their time.",
    labels=("peer",),
    bound=MAX_HEARD_CLOCKS,
)
RETENTION_PAUSED = gauge(
    "tidelog_retention_paused_seconds",
    "For how long this broker has deleted nothing by age, because its clock is in doubt; 0: it is "
    "not.",
    "Check what `tidelog explain` reports about its clock, and correct it; it is trusted again if "
    "other brokers agree, or none has contradicted it for a day, or for 10 minutes after a reboot.",
)
ISR_SHRINKS = counter(
    "tidelog_isr_shrinks_total",
    "Times that this leader took replicas out of an ISR.",
    "Single ones come from restarts; a lasting rate means a slow disk, network or broker.",
    labels=("cause",),
    series=[(cause,) for cause in ISR_CAUSES],
    bound=MAX_OTHER_SERIES,
)
ISR_EXPANDS = counter(
    "tidelog_isr_expands_total",
    "Times that this leader took replicas into an ISR.",
    "As many as shrinks, soon after: replicas come and go; check tidelog_isr_shrinks_total.",
)

# Data.
DATA_BYTES = counter(
    "tidelog_data_bytes_total",
    "Bytes of records: produced and fetched by clients, sent to followers, got from leaders.",
    "Compare with the network's and the disk's limits.",
    labels=("flow",),
    series=[(flow,) for flow in FLOWS],
)
DATA_RECORDS = counter(
    "tidelog_data_records_total",
    "Records, by the same flows.",
    "Divide the bytes by them for the size of a record.",
    labels=("flow",),
    series=[(flow,) for flow in FLOWS],
)
DATA_BATCHES = counter(
    "tidelog_data_batches_total",
    "Batches, by the same flows.",
    "Few records in each cost CPU: let producers linger.",
    labels=("flow",),
    series=[(flow,) for flow in FLOWS],
)
TOPIC_BYTES = counter(
    "tidelog_topic_bytes_total",
    "Bytes of records of a topic through this broker; the busiest topics only.",
    "Spread a topic that is too much for its leaders over more partitions.",
    labels=("topic", "flow"),
    bound=MAX_TOPIC_SERIES * len(TOPIC_FLOWS),
)
TOPIC_RECORDS = counter(
    "tidelog_topic_records_total",
    "Records of a topic through this broker; the busiest topics only.",
    "Spread a topic that is too much for its leaders over more partitions.",
    labels=("topic", "flow"),
    bound=MAX_TOPIC_SERIES * len(TOPIC_FLOWS),
)
EVICTED_PRODUCERS = counter(
    "tidelog_crowded_out_producers_total",
    "Producers without a name that replicas here forgot before producer_id_expiration_ms, because "
    "too many write to their partition; recent: within 10 minutes of their last batch, so that a "
    "retry of their first batch is written twice.",
    "Find clients that start a producer for each task, and let them keep one; or spread them "
    "over more partitions.",
    labels=("last_write",),
    series=[(age,) for age in LAST_WRITES],
)
DIRECTORY_INTACT = gauge(
    "tidelog_data_directory_intact",
    "1: the data directory holds what was acknowledged under the broker's id; 0: it is a copy, an "
    "older backup or a replacement, so that it counts as intact only since its last registration.",
    "Run `tidelog explain`, which says why; 0 ends with a clean stop and start once every ISR has "
    "the broker.",
)
WAITS_FOR_BROKER_ID = gauge(
    "tidelog_waits_for_broker_id",
    "1: another process of this broker's id is registered, with this data directory or a copy of "
    "it, and this process waits.",
    "Run `tidelog explain`, which names both, and stop one of them. Give each broker its own "
    "broker_id and data_dir.",
)
DAMAGED_BATCHES = gauge(
    "tidelog_damaged_batches",
    "Stretches of records that this broker's disk damaged and that no other replica could supply; "
    "they cannot be read.",
    "Run `tidelog explain`, which names their offsets. Check the disk; restore the records from a "
    "backup, or let consumers skip them (on_damage).",
)
DIGESTS_COMPARED = counter(
    "tidelog_digest_ranges_compared_total",
    "Ranges of offsets whose digests this broker, as the leader, compared with those that its "
    "followers reported.",
    "If it stays at 0 while followers fetch, check digest_range_offsets: 0 turns the comparison "
    "off.",
)
DIGESTS_NOT_COMPARED = counter(
    "tidelog_digest_ranges_not_compared_total",
    "Ranges that followers reported and that were not compared: too many others waited to be read "
    "from the disk, the read had no result, or a batch of the range is unreadable. The next pass "
    "of the scrub reports them again.",
    "Check whether many brokers scrub at full rate at once.",
)
DIVERGENCES_FOUND = counter(
    "tidelog_divergences_found_total",
    "Ranges of committed records in which this broker found that replicas hold different batches, "
    "since it started.",
    "Run `tidelog explain`, which names the offsets and both replicas.",
)
DIVERGED_RANGES = gauge(
    "tidelog_diverged_ranges",
    "Ranges of committed records in which replicas hold different batches, as this broker found, "
    "and has not found equal since.",
    "Run `tidelog explain`, which names the offsets and both replicas; compare them with "
    "`tidelog dump-log FILE`, and copy the wrong replica again.",
)
PRODUCER_NAMES = gauge(
    "tidelog_named_producers",
    "Names of producers in the cluster, as this broker knows it; each takes room in etcd, in every "
    "broker and in every partition that it wrote to.",
    "Find jobs that use new names for each run; an unused name expires after "
    "producer_name_expiration_ms.",
)
WAITING_CONSUMERS = gauge(
    "tidelog_waiting_consumers_partitions",
    "Partitions led here whose consumers get nothing, because their offset lies between high "
    "watermark and log end.",
    "Run `tidelog explain`: it says what holds the high watermark back.",
)

# The log.
LOG_SIZE = gauge(
    "tidelog_log_size_bytes",
    "Bytes of all logs here.",
    "Compare with tidelog_disk_free_bytes for how long the disk lasts; retention_bytes and "
    "retention_ms bound it.",
)
LOG_SEGMENTS = gauge(
    "tidelog_log_segments",
    "Segments of all logs here.",
    "If there are very many, raise segment_bytes.",
)
TOPIC_LOG_SIZE = gauge(
    "tidelog_topic_log_size_bytes",
    "Bytes of a topic's replicas here; the largest topics only.",
    "Lower that topic's retention if the disk fills up.",
    labels=("topic",),
    bound=MAX_TOPIC_SERIES,
)
PARTITION_LOG_SIZE = gauge(
    "tidelog_partition_log_size_bytes",
    "Bytes of a replica's log here; the largest only.",
    "If one outgrows its siblings, check the producers' keys.",
    labels=("topic", "partition"),
    bound=MAX_PARTITION_SERIES,
)
UNFLUSHED_RECORDS = gauge(
    "tidelog_log_unflushed_records",
    "Records here that are not known to be synced to the disk.",
    "If it only grows the disk does not keep up, or fails: check flush in the log.",
)
DISK_FREE = gauge(
    "tidelog_disk_free_bytes",
    "Free bytes of the file system of data_dir.",
    "Below a tenth of its size: lower retention or add disk, before writes are rejected.",
)
DISK_SIZE = gauge(
    "tidelog_disk_size_bytes",
    "Size of the file system of data_dir.",
    "Compare with tidelog_disk_free_bytes for how full it is.",
)

BROKER_METRICS = (
    *SERVICE_METRICS,
    STATE_CHANGE_DURATION.of(BROKER_TIMED_CHANGES),
    REQUEST_DURATION.of(REQUESTS),
    REFUSED,
    QUEUE_DEPTH.of([(queue,) for queue in QUEUES]),
    CLIENT_REQUESTS,
    CLIENT_REJECTIONS,
    REGISTERED,
    HAS_FULL_STATE,
    REPLICAS,
    LEADERS,
    LEADERLESS,
    OUT_OF_SERVICE,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    HW_STALLED,
    UNCOMMITTED_RECORDS,
    PARTITIONS_WITHOUT_SERIES,
    LAG_RECORDS,
    LAG_BYTES,
    LAG_SECONDS,
    FOLLOWER_LAG_RECORDS,
    FOLLOWER_LAG_BYTES,
    FOLLOWER_MAX_LAG_SECONDS,
    FOLLOWER_LAGGING_PARTITIONS,
    FOLLOWER_OUT_OF_ISR,
    FOLLOWER_FETCH_AGE,
    FOLLOWER_ADDING,
    FOLLOWER_ADDING_BYTES,
    MOVE_SENT_BYTES,
    CLOCK_SKEW,
    RETENTION_PAUSED,
    ISR_SHRINKS,
    ISR_EXPANDS,
    DATA_BYTES,
    DATA_RECORDS,
    DATA_BATCHES,
    TOPIC_BYTES,
    TOPIC_RECORDS,
    EVICTED_PRODUCERS,
    DIRECTORY_INTACT,
    WAITS_FOR_BROKER_ID,
    DAMAGED_BATCHES,
    DIGESTS_COMPARED,
    DIGESTS_NOT_COMPARED,
    DIVERGENCES_FOUND,
    DIVERGED_RANGES,
    *SCRUB_METRICS,
    PRODUCER_NAMES,
    WAITING_CONSUMERS,
    LOG_SIZE,
    LOG_SEGMENTS,
    TOPIC_LOG_SIZE,
    PARTITION_LOG_SIZE,
    UNFLUSHED_RECORDS,
    DISK_FREE,
    DISK_SIZE,
)
