"""Invalid input of operators, as each interface takes it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tidelog.admin_messages import Move, RecoveryChoice
from tidelog.client import Admin
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from unit.interfaces.world import RestRequest

AdminCall = Callable[[Admin], Coroutine[Any, Any, object]]

STALE = 1
IF_MATCH = {"If-Match": f'"{STALE}"'}
MANY_BROKERS = list(range(100, 151))


class BadInput(NamedTuple):
    """`phrases`: what the reason must name, the fix included. `grpc`, `rest`, `cli`: None if the
    input cannot be expressed there. `apart`: interfaces that reject it before they call the
    controller, with their own message and their own option names."""

    code: ErrorCode
    phrases: tuple[str, ...]
    grpc: AdminCall | None = None
    rest: RestRequest | None = None
    cli: str | None = None
    apart: tuple[str, ...] = ()
    stdin: str = ""


def _create(**fields: Any) -> AdminCall:
    fields = {"topic": "lake", "partitions": 1, "replication_factor": 1, **fields}
    return lambda admin: admin.create_topic(**fields)


def _post(path: str, query: dict[str, Any] | None = None, /, **body: Any) -> RestRequest:
    return RestRequest("POST", path, body, None, query)


def _put(path: str, headers: dict[str, str] | None = None, /, **body: Any) -> RestRequest:
    return RestRequest("PUT", path, body, headers)


def _new(**body: Any) -> RestRequest:
    return _post("/v1/topics", **{"topic": "lake", "replication_factor": 1, **body})


def _alter(topic: str = "sea", **change: Any) -> tuple[AdminCall, RestRequest]:
    return (
        lambda admin: admin.alter_topic_config(topic, change.get("set"), change.get("unset", ())),
        RestRequest("PATCH", f"/v1/topics/{topic}/config", change),
    )


def _reassign(topic: str, partition: int, *target: int) -> tuple[AdminCall, RestRequest, str]:
    move = {"topic": topic, "partition": partition, "target": list(target)}
    ids = ",".join(map(str, target))
    return (
        lambda admin: admin.reassign([Move(topic, partition, target)]),
        _post("/v1/reassignments", moves=[move]),
        f"reassign {topic}/{partition}={ids} --yes",
    )


def _lead(topic: str, partition: int, leader: int) -> tuple[AdminCall, RestRequest, str]:
    return (
        lambda admin: admin.move_leaders({TopicPartition(topic, partition): leader}),
        _post(
            "/v1/leaders/move", moves=[{"topic": topic, "partition": partition, "leader": leader}]
        ),
        f"leaders move {topic}/{partition}={leader}",
    )


def _choose(topic: str, partition: int, broker: int) -> tuple[AdminCall, RestRequest, str]:
    choice = {"partition": partition, "broker_id": broker}
    return (
        lambda admin: admin.recover_partitions(topic, choices=[RecoveryChoice(partition, broker)]),
        _post("/v1/recovery", topic=topic, choices=[choice], confirm=topic),
        f"recovery choose {topic}/{partition}={broker} --yes",
    )


def _brokers(verb: str, *ids: int) -> tuple[AdminCall, RestRequest, str]:
    named = " ".join(map(str, ids))
    return (
        lambda admin: getattr(admin, f"{verb}_brokers")(ids),
        _post(f"/v1/brokers/{verb}", broker_ids=list(ids)),
        f"brokers {verb} {named} --yes",
    )


NO_TOPIC = ("topic 'nosuch' does not exist", "create it first, or correct the name")
_NAME = "1 to 200 characters out of a-z, A-Z, 0-9, '.', '_' and '-'"

UNKNOWN_TOPIC = {
    f"unknown topic: {what}": BadInput(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC, *faces)
    for what, faces in {
        "described": (
            lambda admin: admin.topic_details(["nosuch"]),
            RestRequest("GET", "/v1/topics/nosuch"),
            "topics config nosuch",
        ),
        "deleted": (
            lambda admin: admin.delete_topic("nosuch"),
            RestRequest("DELETE", "/v1/topics/nosuch", query={"confirm": "nosuch"}),
            "topics delete nosuch --yes",
        ),
        "deleted, dry": (
            lambda admin: admin.plan_deletion("nosuch"),
            RestRequest("DELETE", "/v1/topics/nosuch", query={"dry_run": True}),
            "topics delete nosuch --dry-run",
        ),
        "configured": (
            *_alter("nosuch", set={"segment_ms": "60000"}),
            "topics alter-config nosuch --set segment_ms=60000 --yes",
        ),
        "more partitions": (
            lambda admin: admin.add_partitions("nosuch", 3),
            _put("/v1/topics/nosuch/partition-count", partitions=3),
            "topics add-partitions nosuch -p 3 --yes",
        ),
        "fewer partitions": (
            lambda admin: admin.remove_partitions("nosuch", 1, confirm_topic="nosuch"),
            _put("/v1/topics/nosuch/partition-count", partitions=1, confirm="nosuch"),
            "topics remove-partitions nosuch -p 1 --yes",
        ),
        "another factor": (
            lambda admin: admin.set_replication_factor(["nosuch"], 2),
            _put("/v1/topics/nosuch/replication-factor", replication_factor=2),
            "topics set-replication-factor nosuch -r 2 --yes",
        ),
        "moved": _reassign("nosuch", 0, 1),
        "led by another": _lead("nosuch", 0, 1),
        "led by its preferred": (
            lambda admin: admin.elect_preferred_leaders({"nosuch": ()}),
            _post("/v1/leaders/elect-preferred", partitions=[{"topic": "nosuch"}]),
            "leaders elect-preferred nosuch",
        ),
        "described for recovery": (
            lambda admin: admin.describe_recovery("nosuch"),
            RestRequest("GET", "/v1/recovery", query={"topic": "nosuch"}),
            "recovery describe nosuch",
        ),
        "recovered": (
            lambda admin: admin.recover_partitions("nosuch"),
            _post("/v1/recovery", topic="nosuch", confirm="nosuch"),
            "topics recover nosuch --yes",
        ),
        "recovered by choice": _choose("nosuch", 0, 1),
    }.items()
}

UNKNOWN_PARTITION = {
    f"unknown partition: {what}": BadInput(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("partition 9 of topic 'sea' does not exist", "its partitions are 0 to 2"),
        *faces,
    )
    for what, faces in {
        "moved": _reassign("sea", 9, 1),
        "led by another": _lead("sea", 9, 1),
        "led by its preferred": (
            lambda admin: admin.elect_preferred_leaders({"sea": [9]}),
            _post("/v1/leaders/elect-preferred", partitions=[{"topic": "sea", "partitions": [9]}]),
            "leaders elect-preferred sea/9",
        ),
        "described for recovery": (
            lambda admin: admin.describe_recovery("sea", [9]),
            RestRequest("GET", "/v1/recovery", query={"topic": "sea", "partition": 9}),
            "recovery describe sea/9",
        ),
        "recovered": (
            lambda admin: admin.recover_partitions("sea", [9]),
            _post("/v1/recovery", topic="sea", partitions=[9], confirm="sea"),
            "topics recover sea -p 9 --yes",
        ),
        "recovered by choice": _choose("sea", 9, 1),
    }.items()
}


def _named(name: str, *phrases: str, cli: str | None = None) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_TOPIC_NAME,
        (*phrases, _NAME),
        _create(topic=name),
        _new(topic=name),
        cli or f"topics create {name} -r 1",
    )


def _counted(partitions: int) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_PARTITION_COUNT,
        (f"{partitions} partitions are requested", "a topic has 1 to 100000"),
        _create(partitions=partitions),
        _new(partitions=partitions),
        f"topics create lake -r 1 -p {partitions}",
    )


def _factor(factor: int) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        (f"replication factor {factor} is requested, but 3 brokers are running", "request 1 to 3"),
        _create(replication_factor=factor),
        _new(replication_factor=factor),
        f"topics create lake -r {factor}",
    )


def _placed(
    code: ErrorCode, phrases: tuple[str, ...], *replicas: tuple[int, ...], **more: Any
) -> BadInput:
    by_hand = ":".join(",".join(map(str, each)) for each in replicas)
    options = "".join(f" --{name.replace('_', '-')} {value}" for name, value in more.items())
    return BadInput(
        code,
        phrases,
        lambda admin: admin.create_topic("lake", assignment=replicas, **more),
        _post("/v1/topics", topic="lake", assignment=[list(each) for each in replicas], **more),
        f"topics create lake --assignment {by_hand}{options}",
    )


def _configured(key: str, value: str, *phrases: str) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_CONFIG,
        phrases,
        _create(config={key: value}),
        _new(config={key: value}),
        f"topics create lake -r 1 -c '{key}={value}'",
    )


def _reconfigured(key: str, value: str, *phrases: str) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_CONFIG,
        phrases,
        *_alter(set={key: value}),
        f"topics alter-config sea --set '{key}={value}' --yes",
    )


CREATION = {
    "empty name": _named("", "is empty", cli="topics create '' -r 1"),
    "name too long": _named("x" * 201, "has 201 characters"),
    "slash in a name": _named("sea/calm", "contains '/'"),
    "space in a name": _named("calm sea", "contains ' '", cli="topics create 'calm sea' -r 1"),
    "name that is a path": _named("..", "would be a path"),
    "name of the cluster's own": BadInput(
        ErrorCode.INVALID_TOPIC_NAME,
        ("are for internal topics", "choose another name"),
        _create(topic="__lake"),
        _new(topic="__lake"),
        "topics create __lake -r 1",
    ),
    "name in use": BadInput(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ("a topic named sea exists", "choose another name"),
        _create(topic="sea"),
        _new(topic="sea"),
        "topics create sea -r 1",
    ),
    "no partitions": _counted(0),
    "fewer than no partitions": _counted(-1),
    "too many partitions": _counted(100_001),
    "factor above the brokers": _factor(4),
    "factor 0": _factor(0),
    "factor below 0": _factor(-1),
    "unknown broker by hand": _placed(
        ErrorCode.UNKNOWN_BROKER,
        ("names broker 9, which cannot hold replicas now", "those that can are 1, 2, 3"),
        *((1, 9),),
    ),
    "broker twice by hand": _placed(
        ErrorCode.INVALID_ASSIGNMENT, ("names broker 2 2 times", "name each once"), (2, 2)
    ),
    "unequal factors by hand": _placed(
        ErrorCode.INVALID_ASSIGNMENT,
        ("has 1 replicas and", "the same number"),
        *((1, 2), (1,)),
    ),
    "another count than by hand": _placed(
        ErrorCode.INVALID_ASSIGNMENT,
        ("the assignment has 1 entries for 5 partitions", "name the replicas of each"),
        *((1, 2),),
        partitions=5,
    ),
    "another factor than by hand": _placed(
        ErrorCode.INVALID_ASSIGNMENT,
        ("has 2 replicas and the topic has 3", "the same number"),
        *((1, 2),),
        replication_factor=3,
    ),
    "unknown key": _configured(
        "retention_mss", "1", "'retention_mss' does not exist", "did you mean retention_ms?"
    ),
    # The CLI lists the units.
    "value that is no number": _configured("retention_ms", "a week", "retention_ms")._replace(
        apart=("cli",)
    ),
    "value below its range": _configured("segment_bytes", "1", "greater than or equal to 65536"),
    "min ISR above the factor": _configured(
        "min_insync_replicas", "2", "the replication factor 1", "set it to at most 1"
    ),
}

CHANGES = {
    "unknown key set": _reconfigured(
        "tide", "1", "'tide' does not exist", "known keys: durability"
    ),
    "value above its range": _reconfigured(
        "max_batch_bytes", str(1 << 40), "less than or equal to 16777216"
    ),
    "min ISR raised above the factor": _reconfigured(
        "min_insync_replicas", "3", "the replication factor 2", "set it to at most 2"
    ),
    "unknown key unset": BadInput(
        ErrorCode.INVALID_CONFIG,
        ("'tide' does not exist",),
        *_alter(unset=["tide"]),
        "topics alter-config sea --unset tide --yes",
    ),
    "key set and unset": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("segment_ms is both set and unset", "choose one"),
        *_alter(set={"segment_ms": "60000"}, unset=["segment_ms"]),
        "topics alter-config sea --set segment_ms=60000 --unset segment_ms --yes",
    ),
    "nothing set": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("set or unset",),
        *_alter(),
        "topics alter-config sea --yes",
        ("cli",),
    ),
    "no partitions kept": BadInput(
        ErrorCode.INVALID_PARTITION_COUNT,
        ("0 partitions are requested", "1 to 100000"),
        lambda admin: admin.remove_partitions("sea", 0, confirm_topic="sea"),
        _put("/v1/topics/sea/partition-count", partitions=0, confirm="sea"),
        "topics remove-partitions sea -p 0 --yes",
    ),
    "too many partitions in all": BadInput(
        ErrorCode.INVALID_PARTITION_COUNT,
        ("100001 partitions are requested", "1 to 100000"),
        lambda admin: admin.add_partitions("sea", 100_001),
        _put("/v1/topics/sea/partition-count", partitions=100_001),
        "topics add-partitions sea -p 100001 --yes",
    ),
    "addition of fewer than there are": BadInput(
        ErrorCode.INVALID_PARTITION_COUNT,
        ("topic sea has 3 partitions, and 2 in total are requested", "remove partitions instead"),
        lambda admin: admin.add_partitions("sea", 2),
        None,
        "topics add-partitions sea -p 2 --yes",
    ),
    "removal of more than there are": BadInput(
        ErrorCode.INVALID_PARTITION_COUNT,
        ("topic sea has 3 partitions, and 4 are to remain", "add partitions instead"),
        lambda admin: admin.remove_partitions("sea", 4, confirm_topic="sea"),
        None,
        "topics remove-partitions sea -p 4 --yes",
    ),
    "removal without the name": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("repeat the topic's name, sea", "dry run first"),
        lambda admin: admin.remove_partitions("sea", 1),
        _put("/v1/topics/sea/partition-count", partitions=1),
    ),
    "unconfirmed removal": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("partitions of topic 'sea' and their records would be deleted for good", "give --yes"),
        cli="topics remove-partitions sea -p 1",
    ),
    "deletion without the name": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("topic 'sea' and its records would be deleted for good",),
        None,
        RestRequest("DELETE", "/v1/topics/sea"),
        "topics delete sea",
        ("rest", "cli"),
    ),
    "added partitions by hand, too few": BadInput(
        ErrorCode.INVALID_ASSIGNMENT,
        ("the assignment has 1 entries for 2 partitions",),
        lambda admin: admin.add_partitions("sea", 5, assignment=[(1, 2)]),
        _put("/v1/topics/sea/partition-count", partitions=5, assignment=[[1, 2]]),
        "topics add-partitions sea -p 5 --assignment 1,2 --yes",
    ),
    "factor of more brokers than there are": BadInput(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ("4",),
        lambda admin: admin.set_replication_factor(["sea"], 4),
        _put("/v1/topics/sea/replication-factor", replication_factor=4),
        "topics set-replication-factor sea -r 4 --yes",
    ),
    "factor below min ISR": BadInput(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ("topic sea has min_insync_replicas=2", "lower min_insync_replicas first"),
        lambda admin: admin.set_replication_factor(["sea"], 1),
        _put("/v1/topics/sea/replication-factor", replication_factor=1),
        "topics set-replication-factor sea -r 1 --yes",
    ),
    "no replicas": BadInput(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ("replication factor 0",),
        lambda admin: admin.set_replication_factor(["bay"], 0),
        _put("/v1/topics/bay/replication-factor", replication_factor=0),
        "topics set-replication-factor bay -r 0 --yes",
    ),
}


def _stale(grpc: AdminCall, rest: RestRequest, cli: str, *phrases: str) -> BadInput:
    request = RestRequest(rest.method, rest.path, rest.body, IF_MATCH, rest.query)
    cli = f"{cli} --expected-revision {STALE}"
    return BadInput(ErrorCode.REVISION_CONFLICT, (*phrases, "no longer at 1"), grpc, request, cli)


STALE_REVISIONS = {
    "plan that would be another one": BadInput(
        ErrorCode.REVISION_CONFLICT,
        ("the plan is now another one", "instead of 'd1'", "check a new dry run"),
        lambda admin: admin.reassign([Move("sea", 1, (3, 2))], expected_plan="d1"),
        _post(
            "/v1/reassignments",
            moves=[{"topic": "sea", "partition": 1, "target": [3, 2]}],
            expected_plan="d1",
        ),
        "reassign sea/1=3,2 --expected-plan d1 --yes",
    ),
    "stale revision of a configuration": _stale(
        lambda admin: admin.alter_topic_config(
            "sea", {"segment_ms": "60000"}, expected_revision=STALE
        ),
        _alter(set={"segment_ms": "60000"})[1],
        "topics alter-config sea --set segment_ms=60000 --yes",
        "topic sea",
    ),
    "stale revision of more partitions": _stale(
        lambda admin: admin.add_partitions("sea", 4, expected_revision=STALE),
        _put("/v1/topics/sea/partition-count", partitions=4),
        "topics add-partitions sea -p 4 --yes",
        "topic sea",
    ),
    "stale revision of fewer partitions": _stale(
        lambda admin: admin.remove_partitions(
            "sea", 1, confirm_topic="sea", expected_revision=STALE
        ),
        _put("/v1/topics/sea/partition-count", partitions=1, confirm="sea"),
        "topics remove-partitions sea -p 1 --yes",
        "topic sea",
    ),
    "stale revision of a deletion": _stale(
        lambda admin: admin.delete_topic("sea", expected_revision=STALE),
        RestRequest("DELETE", "/v1/topics/sea", query={"confirm": "sea"}),
        "topics delete sea --yes",
        "topic sea",
    ),
    "stale revision of a throttle": _stale(
        lambda admin: admin.set_throttle(50_000, expected_revision=STALE),
        _put("/v1/throttle", bytes_per_second=50_000),
        "throttle set 50kB",
        "the throttle",
    ),
    "stale revision of a cancellation": _stale(
        lambda admin: admin.cancel_operation("busy", expected_revision=STALE),
        RestRequest("POST", "/v1/operations/busy/cancel"),
        "operations cancel busy --yes",
        "operation busy",
    ),
    "stale revision of a cancellation, dry": _stale(
        lambda admin: admin.plan_cancellation("busy", expected_revision=STALE),
        RestRequest("POST", "/v1/operations/busy/cancel", query={"dry_run": True}),
        "operations cancel busy --dry-run",
        "operation busy",
    ),
    "stale replicas of a move": BadInput(
        ErrorCode.REVISION_CONFLICT,
        ("has the replicas [2, 3] and no longer [1, 3]", "plan the move again"),
        lambda admin: admin.reassign([Move("sea", 1, (3, 2), (1, 3))]),
        _post(
            "/v1/reassignments",
            moves=[{"topic": "sea", "partition": 1, "target": [3, 2], "original": [1, 3]}],
        ),
        "reassign --file - --yes",
        stdin='[{"topic": "sea", "partition": 1, "target": [3, 2], "original": [1, 3]}]',
    ),
    "stale id of a moved topic": BadInput(
        ErrorCode.UNKNOWN_TOPIC_ID,
        ("not former", "deleted and created again", "describe it,"),
        lambda admin: admin.reassign([Move("sea", 1, (3, 2), (), "former")]),
        _post(
            "/v1/reassignments",
            moves=[{"topic": "sea", "partition": 1, "target": [3, 2], "topic_id": "former"}],
        ),
        "reassign --file - --yes",
        stdin='[{"topic": "sea", "partition": 1, "target": [3, 2], "topic_id": "former"}]',
    ),
}

MOVES = {
    "move to an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("names broker 9, which cannot hold replicas now", "those that can are 1, 2, 3"),
        *_reassign("sea", 1, 2, 9),
    ),
    "move to a broker twice": BadInput(
        ErrorCode.INVALID_ASSIGNMENT,
        ("names broker 2 2 times", "name each once"),
        *_reassign("sea", 1, 2, 2),
    ),
    "move to fewer than min ISR": BadInput(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ("min_insync_replicas=2", "lower min_insync_replicas first, or keep more replicas"),
        *_reassign("sea", 1, 3),
    ),
    "move to no broker": BadInput(
        ErrorCode.INVALID_ASSIGNMENT,
        ("has no replicas", "name at least one broker"),
        *_reassign("sea", 1)[:2],
    ),
    "move of what moves": BadInput(
        ErrorCode.PARTITION_BUSY,
        ("operation busy", "wait for its end, or cancel it first"),
        *_reassign("tide", 0, 3),
    ),
    "move named twice": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("is named twice", "name each partition once"),
        lambda admin: admin.reassign([Move("sea", 1, (3, 2)), Move("sea", 1, (1, 2))]),
        _post(
            "/v1/reassignments",
            moves=[
                {"topic": "sea", "partition": 1, "target": [3, 2]},
                {"topic": "sea", "partition": 1, "target": [1, 2]},
            ],
        ),
        "reassign sea/1=3,2 sea/1=1,2 --yes",
    ),
    "no moves": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("no moves are named",),
        lambda admin: admin.reassign([]),
        _post("/v1/reassignments", moves=[]),
        "reassign --yes",
        ("cli",),
    ),
    "unconfirmed move": BadInput(
        ErrorCode.NOT_CONFIRMED, ("1 partition would be moved", "--yes"), cli="reassign sea/1=3,2"
    ),
    "feature level beyond the release": BadInput(
        ErrorCode.UNSUPPORTED_VERSION,
        ("supports feature level 1 and not 7", "upgrade all processes first"),
        lambda admin: admin.raise_feature_level(7),
        _put("/v1/cluster/feature-level", level=7),
        "cluster upgrade --to 7 --yes",
    ),
    "throttle below the least": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("a limit of 1023 bytes per second", "set at least 1024"),
        lambda admin: admin.set_throttle(1023),
        _put("/v1/throttle", bytes_per_second=1023),
        "throttle set 1023",
    ),
    "throttle of nothing": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("a limit of 0 bytes per second", "or none"),
        lambda admin: admin.set_throttle(0),
        _put("/v1/throttle", bytes_per_second=0),
        "throttle set 0",
    ),
    "throttle below nothing": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("a limit of -5 bytes per second", "or none"),
        lambda admin: admin.set_throttle(-5),
        _put("/v1/throttle", bytes_per_second=-5),
    ),
}

BROKERS = {
    "addition of an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("broker 9 is not running", "those that are: [1, 2, 3]", "Start it first"),
        *_brokers("add", 9),
    ),
    "removal of an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("broker 9 is not registered and holds no replicas", "[1, 2, 3]"),
        *_brokers("remove", 9),
    ),
    "removal of more than can be spared": BadInput(
        ErrorCode.NOT_ENOUGH_BROKERS, ("sea", "2"), *_brokers("remove", 2, 3)
    ),
    "removal of the last brokers": BadInput(
        ErrorCode.NOT_ENOUGH_BROKERS, ("sea", "2"), *_brokers("remove", 1, 2, 3)
    ),
    "too many brokers added": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("51 brokers are named", "name 1 to 50 at once"),
        *_brokers("add", *MANY_BROKERS),
    ),
    "no brokers added": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("0 brokers are named", "name 1 to 50 at once"),
        *_brokers("add")[:2],
    ),
    "maintenance of an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("broker 9 is not registered", "[1, 2, 3]"),
        lambda admin: admin.set_maintenance([9]),
        _put("/v1/brokers/9/maintenance", maintenance=True),
        "brokers maintenance 9",
    ),
    "restart of an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("broker 9 is not registered", "[1, 2, 3]"),
        lambda admin: admin.check_restart(9),
        RestRequest("GET", "/v1/brokers/9/restart-check"),
        "brokers check-restart 9",
    ),
    "description of an unknown broker": BadInput(
        ErrorCode.UNKNOWN_BROKER,
        ("broker 9 is not registered", "[1, 2, 3]"),
        lambda admin: admin.describe_brokers([9]),
        RestRequest("GET", "/v1/brokers/9"),
        "brokers describe 9",
    ),
    "leader that is not in sync": BadInput(
        ErrorCode.NOT_ELIGIBLE_LEADER, ("2", "in sync"), *_lead("bay", 0, 2)
    ),
    "leader without a replica": BadInput(
        ErrorCode.NOT_ELIGIBLE_LEADER,
        ("broker 3 holds no replica of bay/0", "those that do: [1, 2]"),
        *_lead("bay", 0, 3),
    ),
    "leader of what moves": BadInput(
        ErrorCode.PARTITION_BUSY,
        ("operation busy", "wait for its end, or cancel it first"),
        *_lead("tide", 0, 1),
    ),
    "leaders of a partition twice": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("is named twice", "name each partition once"),
        None,
        _post(
            "/v1/leaders/move",
            moves=[
                {"topic": "sea", "partition": 1, "leader": 2},
                {"topic": "sea", "partition": 1, "leader": 3},
            ],
        ),
        "leaders move sea/1=2 sea/1=3",
    ),
    "no leaders": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("0 leaders are named", "name 1 to 1000 at once"),
        lambda admin: admin.move_leaders({}),
        _post("/v1/leaders/move", moves=[]),
    ),
}


def _id(operation_id: str) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_REQUEST,
        ("the operation id", "1 to 64 of the characters a-z, A-Z, 0-9, '_' and '-'"),
        lambda admin: admin.rebalance(operation_id=operation_id),
        _post("/v1/rebalance", operation_id=operation_id),
        f"rebalance --operation-id '{operation_id}' --yes",
    )


OPERATIONS = {
    "operation id with a space": _id("no good"),
    "operation id too long": _id("x" * 65),
    "operation id with a slash": _id("a/b"),
    "operation id of a creation": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("the operation id 'no good' is invalid",),
        _create(operation_id="no good"),
        _new(operation_id="no good"),
        "topics create lake -r 1 --operation-id 'no good'",
    ),
    "operation id of another request": BadInput(
        ErrorCode.OPERATION_ID_IN_USE,
        ("operation ended is another one: reassignment", "choose another id"),
        lambda admin: admin.rebalance(operation_id="ended"),
        _post("/v1/rebalance", operation_id="ended"),
        "rebalance --operation-id ended --yes",
    ),
    "unknown operation described": BadInput(
        ErrorCode.UNKNOWN_OPERATION,
        ("there is no operation 'nosuch'", "list the operations"),
        lambda admin: admin.describe_operation("nosuch"),
        RestRequest("GET", "/v1/operations/nosuch"),
        "operations describe nosuch",
    ),
    "moves of an unknown operation": BadInput(
        ErrorCode.UNKNOWN_OPERATION,
        ("there is no operation 'nosuch'", "list the operations"),
        lambda admin: admin.operation_moves("nosuch"),
        RestRequest("GET", "/v1/operations/nosuch/moves"),
        "operations moves nosuch",
    ),
    "unknown operation cancelled": BadInput(
        ErrorCode.UNKNOWN_OPERATION,
        ("there is no operation 'nosuch'", "list the operations"),
        lambda admin: admin.cancel_operation("nosuch"),
        RestRequest("POST", "/v1/operations/nosuch/cancel"),
        "operations cancel nosuch --yes",
    ),
    "ended operation cancelled": BadInput(
        ErrorCode.OPERATION_ENDED,
        ("operation ended is done already", "reverse it"),
        lambda admin: admin.cancel_operation("ended"),
        RestRequest("POST", "/v1/operations/ended/cancel"),
        "operations cancel ended --yes",
    ),
    "unconfirmed cancellation": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("operation busy would be cancelled", "give --yes"),
        cli="operations cancel busy",
    ),
    "unknown operation reversed": BadInput(
        ErrorCode.UNKNOWN_OPERATION,
        ("there is no operation 'nosuch'", "list the operations"),
        lambda admin: admin.reverse_operation("nosuch"),
        RestRequest("POST", "/v1/operations/nosuch/reverse"),
        "operations reverse nosuch --yes",
    ),
    "running operation reversed": BadInput(
        ErrorCode.PARTITION_BUSY,
        ("operation busy is still running", "cancel it, or wait for its end"),
        lambda admin: admin.reverse_operation("busy"),
        RestRequest("POST", "/v1/operations/busy/reverse"),
        "operations reverse busy --yes",
    ),
    "operations of an unknown state": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("cancelling",),
        lambda admin: admin.list_operations(["asleep"]),
        RestRequest("GET", "/v1/operations", query={"state": "asleep"}),
        "operations list --state asleep",
        ("grpc", "rest", "cli"),
    ),
}

RECOVERY = {
    "leader chosen where there is one": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("bay/0 has a leader", "there is nothing to recover"),
        *_choose("bay", 0, 2),
    ),
    "leader chosen without a replica": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("broker 1 holds no replica of reef/0", "those that do: [4]"),
        *_choose("reef", 0, 1),
    ),
    "leader chosen without a replica, in a dry run": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("broker 1 holds no replica of reef/0", "those that do: [4]"),
        lambda admin: admin.describe_recovery("reef", choices=[RecoveryChoice(0, 1)]),
        _post(
            "/v1/recovery",
            {"dry_run": True},
            topic="reef",
            choices=[{"partition": 0, "broker_id": 1}],
        ),
        "recovery choose reef/0=1 --dry-run",
    ),
    "two leaders chosen": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("named twice", "name each partition once"),
        lambda admin: admin.recover_partitions(
            "reef", choices=[RecoveryChoice(0, 4), RecoveryChoice(0, 1)]
        ),
        _post(
            "/v1/recovery",
            topic="reef",
            confirm="reef",
            choices=[{"partition": 0, "broker_id": 4}, {"partition": 0, "broker_id": 1}],
        ),
        "recovery choose reef/0=4 reef/0=1 --yes",
    ),
    "recovery of a partition that has changed": BadInput(
        ErrorCode.REVISION_CONFLICT,
        ("reef/0 is at revision", "no longer at 1"),
        lambda admin: admin.recover_partitions(
            "reef", choices=[RecoveryChoice(0, 4, expected_revision=1)]
        ),
        _post(
            "/v1/recovery",
            topic="reef",
            confirm="reef",
            choices=[{"partition": 0, "broker_id": 4, "expected_revision": 1}],
        ),
    ),
    "partitions without their topic": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("partitions [1] are named without their topic", "omit the partitions"),
        lambda admin: admin.describe_recovery("", [1]),
        RestRequest("GET", "/v1/recovery", query={"partition": 1}),
    ),
    "unconfirmed recovery": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("records of topic 'reef' may be lost for good",),
        None,
        _post("/v1/recovery", topic="reef"),
        "topics recover reef",
        ("rest", "cli"),
    ),
    "unconfirmed choice": BadInput(
        ErrorCode.NOT_CONFIRMED,
        ("records of topic 'reef' may be lost for good",),
        None,
        _post("/v1/recovery", topic="reef", choices=[{"partition": 0, "broker_id": 4}]),
        "recovery choose reef/0=4",
        ("rest", "cli"),
    ),
}


def _late(timeout_ms: int, seconds: float) -> BadInput:
    return BadInput(
        ErrorCode.INVALID_REQUEST,
        (f"a timeout of {timeout_ms} ms is invalid; use 1 to 300000 ms",),
        _create(topic="lake", timeout_ms=timeout_ms),
        _post("/v1/topics", {"timeout_ms": timeout_ms}, topic="lake", replication_factor=1),
        f"topics create lake -r 1 --timeout {seconds}",
    )


BOUNDS = {
    "timeout too long": _late(300_001, 300.001),
    "timeout below nothing": _late(-1, -0.001),
    "page of less than nothing": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("a page size of -1 is invalid", "1 to 1000"),
        lambda admin: admin.operation_moves_page("ended", -1),
        RestRequest("GET", "/v1/operations/ended/moves", query={"page_size": -1}),
    ),
    "page of less than nothing, of what the gateway pages": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("a page size of -1 is invalid", "1 to 1000"),
        None,
        RestRequest("GET", "/v1/topics", query={"page_size": -1}),
    ),
    "number beyond the wire's": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("partitions",),
        _create(partitions=-3_000_000_000),
        _new(partitions=-3_000_000_000),
        "topics create lake -r 1 -p -3000000000",
        apart=("rest",),
    ),
    "name that is no UTF-8": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("'s\\udcff' cannot be sent", "no text in UTF-8", "correct its characters"),
        lambda admin: admin.delete_topic("s\udcff"),
        None,
        "topics delete s\udcff --yes",
        apart=("cli",),
    ),
    "unknown page token": BadInput(
        ErrorCode.INVALID_REQUEST,
        ("page token 'x' is invalid", "start without one"),
        lambda admin: admin.operation_moves_page("ended", 10, "x"),
        RestRequest("GET", "/v1/operations/ended/moves", query={"page_token": "x"}),
    ),
}

BAD_INPUT = {
    **UNKNOWN_TOPIC,
    **UNKNOWN_PARTITION,
    **CREATION,
    **CHANGES,
    **STALE_REVISIONS,
    **MOVES,
    **BROKERS,
    **OPERATIONS,
    **RECOVERY,
    **BOUNDS,
}
