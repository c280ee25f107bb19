"""Cases that name existing things.

Generated names match no topic, broker or operation, so some cases are given ones that do. Pure,
apart from the random numbers that are passed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# A cluster of test processes has no room for the 100,000 partitions that a request may ask for.
MAX_PARTITIONS = 6
# A time that is too short for a busy machine ends in a timeout, which is right and no fault.
LEAST_TIMEOUT_MS = 10_000
MAX_DURATION_MS = 50
MAX_WAIT_MS = 50
# Generated values of these stay as they are, unless they are named here.
NO_BODY = object()


class KnownTopic(NamedTuple):
    """`replicas`: of its first partition."""

    name: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """The current things.

    `cancelled`: an operation that may be cancelled again.
    `doomed`: creates a topic that may be deleted."""

    topics: tuple[KnownTopic, ...]
    brokers: tuple[int, ...]
    operations: tuple[str, ...]
    cancelled: str
    new_name: Callable[[], str]
    doomed: Callable[[], str]


@dataclass(slots=True)
class Grounds:
    """The values that a case is given; `absent`: parameters that it has to omit."""

    path: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ("page_token",)
    body: Any = NO_BODY


Ground = Callable[[Facts, random.Random], Grounds]
GROUNDS: dict[str, Ground] = {}


def _for(*operations: str) -> Callable[[Ground], Ground]:
    def register(ground: Ground) -> Ground:
        GROUNDS.update(dict.fromkeys(operations, ground))
        return ground

    return register


def ground(operation: str, facts: Facts, rng: random.Random) -> Grounds:
    found = GROUNDS.get(operation)
    return found(facts, rng) if found is not None else Grounds()


def bounded(operation: str, query: Mapping[str, Any], body: Any) -> tuple[dict[str, Any], Any]:
    """The same value within what the cluster of a test can bear; an invalid number stays."""
    query = dict(query)
    if "timeout_ms" in query:
        query["timeout_ms"] = _at_least(query["timeout_ms"], LEAST_TIMEOUT_MS)
    if "wait_ms" in query:
        query["wait_ms"] = _at_most(query["wait_ms"], MAX_WAIT_MS)
    if operation == "stream_events":
        query["duration_ms"] = _at_most(query.get("duration_ms", 0), MAX_DURATION_MS)
    if isinstance(body, dict):
        body = dict(body)
        if operation in ("create_topic", "set_partition_count") and "partitions" in body:
            body["partitions"] = _at_most(body["partitions"], MAX_PARTITIONS)
        if isinstance(body.get("assignment"), list):
            body["assignment"] = body["assignment"][:MAX_PARTITIONS]
    return query, body


def _at_least(value: Any, least: int) -> Any:
    return max(value, least) if type(value) is int and value > 0 else value


def _at_most(value: Any, most: int) -> Any:
    return min(value, most) if type(value) is int else value


def _topic(facts: Facts, rng: random.Random) -> KnownTopic:
    return rng.choice(facts.topics)


@_for("describe_broker", "check_restart")
def _one_broker(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"broker_id": rng.choice(facts.brokers)})


@_for("set_maintenance")
def _maintenance(facts: Facts, rng: random.Random) -> Grounds:
    begins = rng.random() < 0.3
    return Grounds(
        path={"broker_id": rng.choice(facts.brokers)},
        query={"dry_run": begins},
        body={"maintenance": begins},
    )


@_for("set_maintenance_of_several")
def _maintenance_of_several(facts: Facts, rng: random.Random) -> Grounds:
    begins = rng.random() < 0.3
    chosen = rng.sample(facts.brokers, rng.randint(1, len(facts.brokers)))
    return Grounds(query={"dry_run": begins}, body={"broker_ids": chosen, "maintenance": begins})


@_for("add_brokers")
def _add(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(body={"broker_ids": [rng.choice(facts.brokers)]})


@_for("remove_brokers")
def _remove(facts: Facts, _: random.Random) -> Grounds:
    return Grounds(query={"dry_run": True}, body={"broker_ids": [facts.brokers[-1]]})


@_for("set_throttle")
def _throttle(_: Facts, rng: random.Random) -> Grounds:
    bound = rng.choice([None, rng.randrange(1 << 20, 1 << 40)])
    return Grounds(absent=("If-Match",), body={"bytes_per_second": bound})


@_for("raise_feature_level")
def _level(_: Facts, rng: random.Random) -> Grounds:
    # The present one: a higher one would stay.
    return Grounds(absent=("If-Match",), query={"dry_run": rng.random() < 0.5}, body={"level": 1})


@_for("describe_topic")
def _described(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"topic": _topic(facts, rng).name})


@_for("list_partitions")
def _partitions(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"topic": _topic(facts, rng).name})


@_for("describe_partition", "list_partition_events")
def _partition(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"topic": _topic(facts, rng).name, "partition": 0})


@_for("create_topic")
def _create(facts: Facts, rng: random.Random) -> Grounds:
    body: dict[str, Any] = {
        "topic": facts.new_name(),
        "partitions": rng.randint(1, MAX_PARTITIONS),
        "replication_factor": rng.choice([None, 1, 2, 3]),
        "config": rng.choice([{}, {"retention_ms": rng.randint(60_000, 10**9)}]),
    }
    if rng.random() < 0.3:
        del body["partitions"], body["replication_factor"]
        body["assignment"] = [rng.sample(facts.brokers, 2) for _ in range(2)]
    return Grounds(body=body)


@_for("delete_topic")
def _delete(facts: Facts, rng: random.Random) -> Grounds:
    name = facts.doomed() if rng.random() < 0.5 else _topic(facts, rng).name
    keeps = name in [topic.name for topic in facts.topics]
    return Grounds(
        path={"topic": name},
        query={"confirm": name, "dry_run": keeps},
        absent=("If-Match",),
    )


@_for("alter_topic_config")
def _config(facts: Facts, rng: random.Random) -> Grounds:
    changed = {"retention_ms": rng.randint(60_000, 10**9)}
    return Grounds(
        path={"topic": _topic(facts, rng).name},
        absent=("If-Match",),
        body=rng.choice([{"set": changed}, {"unset": ["retention_ms"]}]),
    )


@_for("set_partition_count")
def _count(facts: Facts, rng: random.Random) -> Grounds:
    name = _topic(facts, rng).name
    partitions = rng.randint(2, MAX_PARTITIONS)
    return Grounds(
        path={"topic": name},
        absent=("If-Match",),
        body={"partitions": partitions, "confirm": name},
    )


@_for("set_replication_factor")
def _factor(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(
        path={"topic": _topic(facts, rng).name}, body={"replication_factor": rng.choice([2, 3])}
    )


@_for("set_replication_factor_of_several")
def _factor_of_several(facts: Facts, rng: random.Random) -> Grounds:
    topics = rng.sample(facts.topics, rng.randint(1, len(facts.topics)))
    return Grounds(
        query={"dry_run": rng.random() < 0.8},
        body={"topics": [topic.name for topic in topics], "replication_factor": rng.choice([2, 3])},
    )


@_for("describe_operation", "list_moves")
def _operation(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"operation_id": rng.choice(facts.operations)})


@_for("cancel_operation")
def _cancel(facts: Facts, _: random.Random) -> Grounds:
    return Grounds(
        path={"operation_id": facts.cancelled}, absent=("If-Match",), query={"dry_run": False}
    )


@_for("reverse_operation")
def _reverse(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(
        path={"operation_id": rng.choice(facts.operations)},
        query={"dry_run": rng.random() < 0.8},
        body={},
    )


@_for("reassign")
def _reassign(facts: Facts, rng: random.Random) -> Grounds:
    topics = rng.sample(facts.topics, rng.randint(1, len(facts.topics)))
    moves = [
        {"topic": topic.name, "partition": 0, "target": rng.sample(facts.brokers, 2)}
        for topic in topics
    ]
    return Grounds(body={"moves": moves})


@_for("rebalance")
def _rebalance(_: Facts, rng: random.Random) -> Grounds:
    return Grounds(body={}, query={"dry_run": rng.random() < 0.8})


@_for("elect_preferred_leaders")
def _elect(facts: Facts, rng: random.Random) -> Grounds:
    selectors = [{"topic": topic.name} for topic in facts.topics]
    return Grounds(body=rng.choice([{}, {"partitions": selectors}]))


@_for("move_leaders")
def _lead(facts: Facts, rng: random.Random) -> Grounds:
    topic = _topic(facts, rng)
    move = {"topic": topic.name, "partition": 0, "leader": rng.choice(topic.replicas)}
    return Grounds(body={"moves": [move]})


@_for("describe_recovery")
def _recovery(facts: Facts, rng: random.Random) -> Grounds:
    topic = _topic(facts, rng).name
    # Partitions without a topic are invalid.
    return rng.choice(
        [
            Grounds(query={"topic": topic}, absent=("page_token", "partition")),
            Grounds(query={"topic": topic, "partition": [0]}),
            Grounds(absent=("page_token", "topic", "partition")),
        ]
    )


@_for("recover_partitions")
def _recover(facts: Facts, rng: random.Random) -> Grounds:
    name = _topic(facts, rng).name
    return Grounds(
        query={"dry_run": rng.random() < 0.8},
        body={"topic": name, "confirm": name, "partitions": rng.choice([[], [0]])},
    )


@_for("list_events", "stream_events", "explain")
def _scoped(facts: Facts, rng: random.Random) -> Grounds:
    scope: dict[str, Any] = {}
    absent = ["topic", "partition", "broker", "Last-Event-ID"]
    if rng.random() < 0.7:
        scope["topic"] = _topic(facts, rng).name
    if scope and rng.random() < 0.5:
        scope["partition"] = 0
    if rng.random() < 0.3:
        scope["broker"] = rng.choice(facts.brokers)
    return Grounds(query=scope, absent=tuple(absent))


@_for("produce_records")
def _produce(facts: Facts, rng: random.Random) -> Grounds:
    record = rng.choice(
        [
            {"value": {"tide": rng.random()}},
            {"key": "north", "value": [None, True]},
            {"value": "calm", "value_encoding": "text", "partition": 0},
            {"value": "AP8=", "value_encoding": "base64", "headers": [{"key": "a", "value": "b"}]},
        ]
    )
    return Grounds(
        path={"topic": _topic(facts, rng).name},
        body={
            "records": [record] * rng.randint(1, 5),
            "acks": rng.choice(["all", "leader", "none"]),
        },
    )


@_for("read_partition_records")
def _read(facts: Facts, rng: random.Random) -> Grounds:
    places: list[dict[str, Any]] = [
        {"offset": 0},
        {"before_offset": 1},
        {"timestamp_ms": rng.randrange(1 << 41)},
        {"latest": rng.randint(1, 20)},
        {},
    ]
    return Grounds(
        path={"topic": _topic(facts, rng).name, "partition": 0},
        query=rng.choice(places),
        absent=("offset", "before_offset", "timestamp_ms", "latest"),
    )


@_for("read_record")
def _read_one(facts: Facts, rng: random.Random) -> Grounds:
    return Grounds(path={"topic": _topic(facts, rng).name, "partition": 0, "offset": 0})


@_for("search_records")
def _search(facts: Facts, rng: random.Random) -> Grounds:
    criteria: list[dict[str, Any]] = [
        {"value_contains": "value-1"},
        {"json_path": "tide"},
        {"header": "a", "header_value": "b"},
        {"partition": [0], "offset": 3, "before_offset": 9},
        {},
    ]
    return Grounds(
        path={"topic": _topic(facts, rng).name},
        query=rng.choice(criteria),
        absent=(
            *("partition", "offset", "before_offset", "timestamp_ms", "before_timestamp_ms"),
            *("key", "key_contains", "value_contains", "header", "header_value"),
            *("json_path", "json_equals", "cursor"),
        ),
    )
