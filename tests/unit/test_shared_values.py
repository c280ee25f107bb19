"""Values that several components share and that must stay compatible with the wire and the
store."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog import errors, model
from tidelog.batch import is_intact, new_batch, stamp
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import NO_EPOCH, NO_LEADER, Codec, LeaderHint, TopicPartition
from tidelog.rpc.wire import batch_from_wire, batch_to_wire, error_from_wire, error_to_wire
from tidelog.state_changes.event import Cause, Change
from tidelog.v1 import broker_pb2, errors_pb2, record_batch_pb2
from tidelog_runtime import replica_control_codec as codec
from tidelog_runtime.metadata import keys as keys_module
from tidelog_runtime.metadata import operations, schema
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving
from tidelog_runtime.metadata.topic_intents import (
    PartitionsAddition,
    PartitionsRemoval,
    TopicDeletion,
    decode_partitions_addition,
    decode_partitions_removal,
    decode_topic_deletion,
    encode_intent,
)
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAddress,
    LeaderAndIsrCommand,
    LogExtent,
    PartitionCommand,
    PartitionResult,
    ReplicaSummary,
    StopPartition,
    StopReplicaCommand,
)

BATCH = stamp(
    new_batch(b"records", codec=Codec.ZSTD, record_count=3, base_timestamp_ms=5,
              max_timestamp_ms=9, producer_id=7, producer_epoch=1, base_sequence=40),
    base_offset=100, leader_epoch=4, append_time_ms=11,
)  # fmt: skip
STATE = LeaderAndIsr(
    topic_id="an-id-of-22-characters",
    replicas=(3, 1, 2),
    controller_epoch=5,
    leader=3,
    leader_epoch=8,
    isr=(Member(1, 11), Member(3, 13)),
    eligible=(),
    min_isr=2,
    unclean_leader_epoch=6,
)


def _names(pairs: Sequence[tuple[str, int]], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in pairs}


def test_error_codes_equal_those_of_the_wire() -> None:
    wire = _names(errors_pb2.ErrorCode.items(), "ERROR_CODE_")
    assert wire == {"UNSPECIFIED": 0} | {code.name: code.value for code in errors.ErrorCode}


def test_codecs_acks_and_positions_equal_those_of_the_wire() -> None:
    codecs = _names(record_batch_pb2.Codec.items(), "CODEC_")
    assert codecs.pop("UNSPECIFIED") == model.Codec.NONE
    assert codecs == {c.name: c.value for c in model.Codec if c}
    acks = _names(broker_pb2.Acks.items(), "ACKS_")
    assert acks == {"UNSPECIFIED": 0} | {a.name: a.value for a in model.Acks}
    positions = _names(broker_pb2.OffsetPosition.items(), "OFFSET_POSITION_")
    assert positions == {"UNSPECIFIED": 0} | {p.name: p.value for p in model.OffsetPosition}


def test_retriability_matches_the_proto_comment_of_each_code() -> None:
    text = (Path(__file__).parents[2] / "proto/tidelog/v1/errors.proto").read_text()
    documented = re.findall(
        r"// (Retriable|Not retriable)(?:.*\n\s*//)*.*\n\s*ERROR_CODE_(\w+) = ", text
    )
    assert len(documented) == len(errors.ErrorCode)
    retriable = {errors.ErrorCode[name] for word, name in documented if word == "Retriable"}
    assert retriable == errors.RETRIABLE
    assert errors.OUTCOME_UNKNOWN <= errors.RETRIABLE
    assert errors.STALE_METADATA <= errors.RETRIABLE


def test_checksums_cover_the_bytes_documented_in_the_proto() -> None:
    """Written out by hand, as a client in another language would compute it."""
    header = BATCH.header
    producer = struct.pack("<Biqqqii", 3, 3, 5, 9, 7, 1, 40) + b"records"
    assert header.crc32c == crc32c(producer)
    broker = struct.pack("<qiqI", 100, 4, 11, header.crc32c)
    assert header.broker_crc32c == crc32c(broker)


@pytest.mark.rule("second-crc-covers-broker-fields")
def test_a_changed_field_or_byte_invalidates_the_checksum() -> None:
    assert is_intact(BATCH)
    for field in BATCH.header._fields:
        header = BATCH.header._replace(**{field: getattr(BATCH.header, field) ^ 1})
        assert not is_intact(BATCH._replace(header=header)), field
    assert not is_intact(BATCH._replace(records=b"recordz"))


def test_batches_round_trip_over_the_wire() -> None:
    assert batch_from_wire(batch_to_wire(BATCH)) == BATCH


def test_errors_round_trip_over_the_wire_with_their_hint() -> None:
    hint = LeaderHint(2, 7, "127.0.0.1:7502")
    error = errors.TidelogError(errors.ErrorCode.NOT_LEADER, "ask 2", hint)
    found = error_from_wire(error_to_wire(error))
    assert (found.code, found.message, found.leader) == (error.code, error.message, hint)


@pytest.mark.parametrize("outcome_unknown", [None, False, True])
@pytest.mark.parametrize("code", errors.ErrorCode)
def test_an_error_says_on_the_wire_whether_its_outcome_is_unknown(
    code: errors.ErrorCode, outcome_unknown: bool | None
) -> None:
    error = errors.TidelogError(code, "why", outcome_unknown=outcome_unknown)
    sent = error_to_wire(error)
    assert error_from_wire(sent).outcome_unknown is error.outcome_unknown
    # A receiver of an earlier version judges by the code.
    assert sent.HasField("outcome_unknown") is (
        error.outcome_unknown is not (code in errors.OUTCOME_UNKNOWN)
    )


def test_a_code_of_a_later_version_is_internal() -> None:
    later = errors_pb2.Error(code=9999)  # type: ignore[arg-type]
    assert error_from_wire(later).code is errors.ErrorCode.INTERNAL


def test_a_leader_is_a_member_in_one_incarnation() -> None:
    assert STATE.leader_broker_epoch == 13
    assert schema.unassigned(schema.TopicEntry("i", 1, 1), (1,), 1).leader_broker_epoch == 0


def test_values_in_the_store_are_json_and_round_trip() -> None:
    assert schema.decode_leader_and_isr(schema.encode_leader_and_isr(STATE)) == STATE
    assert b'"isr":{"1":11,"3":13}' in schema.encode_leader_and_isr(STATE)
    topic = schema.TopicEntry("i", 6, 3, {"retention_ms": "5"})
    assert schema.decode_topic(schema.encode(topic)) == topic
    broker = schema.BrokerRegistration("h:1", "r", "u", schema.RUNNING, 4, 5)
    assert schema.decode_broker(schema.encode(broker)) == broker
    controller = schema.ControllerEntry(1, "h:1")
    assert schema.decode_controller(schema.encode(controller)) == controller
    assert schema.decode_cluster(schema.encode(schema.ClusterEntry("c"))).cluster_id == "c"
    deletion = TopicDeletion("i")
    assert decode_topic_deletion(encode_intent(deletion)) == deletion


def test_a_topic_without_removed_partitions_is_written_as_by_older_releases() -> None:
    topic = schema.TopicEntry("i", 6, 3)
    assert b"first_leader_epoch" not in schema.encode(topic)
    risen = schema.TopicEntry("i", 6, 3, shrunk=True, first_leader_epoch=4)
    assert schema.decode_topic(schema.encode(risen)) == risen


def test_controller_registrations_round_trip_through_the_store() -> None:
    process = schema.ControllerProcess("10.0.0.1:7400", 1_700_000_000_000)
    assert schema.decode_controller_process(schema.encode(process)) == process


def test_departures_round_trip_through_the_store() -> None:
    left = schema.Departure(13, Cause.BROKER_CRASHED, 1_700_000_000_000, "10.0.0.1:7500")
    assert schema.decode_departure(schema.encode_departure(left)) == left


async def test_the_loss_of_an_unclean_election_is_in_the_key_and_in_commands() -> None:
    state = dataclasses.replace(STATE, unclean_leader_epoch=7, unclean_lost_records=0)
    stored = schema.decode_leader_and_isr(schema.encode_leader_and_isr(state))
    assert stored.unclean_lost_records == 0
    command = PartitionCommand(TopicPartition("t", 4), stored, 77, {})
    wire = await codec.leader_and_isr_to_wire(
        LeaderAndIsrCommand(
            1, 2, 13, full_state=False, partitions=[command], leaders={}, store_revision=80
        )
    )
    (reported,) = (await codec.leader_and_isr_from_wire(wire)).partitions
    assert reported.state.unclean_lost_records == 0


def test_a_loss_missing_from_an_older_key_is_unknown() -> None:
    raw = json.loads(schema.encode_leader_and_isr(STATE))
    del raw["unclean_lost_records"]
    assert schema.decode_leader_and_isr(json.dumps(raw).encode()).unclean_lost_records == NOT_KNOWN


# Every field has a value that differs from its default.
FULL_STATE = dataclasses.replace(
    STATE,
    replicas=(3, 1, 2, 4),
    eligible=(Member(2, 12),),
    min_isr=3,
    moving=Moving("grow-1", (3, 1, 2), (4, 1)),
    unclean_lost_records=7,
    unclean_elected_at_ms=9_000,
    change=Change("c5-9", Cause.REASSIGNED, 1_000, "0" * 32),
)


def _set_fields(state: LeaderAndIsr) -> set[str]:
    """The required fields, and the optional ones that differ from their defaults."""
    return {
        f.name
        for f in dataclasses.fields(state)
        if f.default is dataclasses.MISSING or getattr(state, f.name) != f.default
    }


async def test_every_field_of_a_partition_state_round_trips_through_the_store_and_the_wire() -> (
    None
):
    every = {f.name for f in dataclasses.fields(LeaderAndIsr)}
    assert _set_fields(FULL_STATE) == every
    stored = schema.decode_leader_and_isr(schema.encode_leader_and_isr(FULL_STATE))
    command = PartitionCommand(TopicPartition("t", 4), stored, 77, {})
    wire = await codec.leader_and_isr_to_wire(
        LeaderAndIsrCommand(
            1, 2, 13, full_state=False, partitions=[command], leaders={}, store_revision=80
        )
    )
    (reported,) = (await codec.leader_and_isr_from_wire(wire)).partitions
    assert dataclasses.astuple(reported.state) == dataclasses.astuple(FULL_STATE)


def test_a_state_of_another_change_is_equal_in_every_other_field() -> None:
    other = Change("c6-1", Cause.BROKER_CRASHED)
    assert dataclasses.astuple(FULL_STATE.with_change(other)) == dataclasses.astuple(
        dataclasses.replace(FULL_STATE, change=other)
    )


async def test_states_that_differ_in_uncompared_fields_differ_in_every_serialized_form() -> None:
    """Serialized forms are cached for states that repeat."""
    other = FULL_STATE.with_change(Change("c6-1", Cause.BROKER_CRASHED, 2_000))
    lossy = dataclasses.replace(FULL_STATE, unclean_lost_records=8)
    assert other == FULL_STATE == lossy
    states = [FULL_STATE, other, lossy, FULL_STATE]
    stored = [schema.decode_leader_and_isr(schema.encode_leader_and_isr(s)) for s in states]
    assert [s.fields for s in stored] == [s.fields for s in states]
    command = LeaderAndIsrCommand(
        1,
        2,
        13,
        full_state=False,
        partitions=[
            PartitionCommand(TopicPartition("t", n), s, 77, {}) for n, s in enumerate(states)
        ],
        leaders={},
        store_revision=80,
    )
    wire = await codec.leader_and_isr_to_wire(command)
    reported = (await codec.leader_and_isr_from_wire(wire)).partitions
    assert [p.state.fields for p in reported] == [s.fields for s in states]
    assert [p.partition.partition for p in reported] == [0, 1, 2, 3]


async def test_a_state_received_from_the_watch_is_not_parsed_from_the_wire_again() -> None:
    partition = TopicPartition("t", 4)
    command = LeaderAndIsrCommand(
        1,
        2,
        13,
        full_state=False,
        partitions=[PartitionCommand(partition, FULL_STATE, 77, {"segment_ms": "1000"}, 70)],
        leaders={},
        store_revision=80,
    )
    wire = await codec.leader_and_isr_to_wire(command)
    watched = dataclasses.replace(FULL_STATE)

    def at_revision(name: TopicPartition, revision: int) -> LeaderAndIsr | None:
        return watched if (name, revision) == (partition, 77) else None

    carried = await codec.leader_and_isr_from_wire(wire, at_revision)
    assert carried == command
    assert carried.partitions[0].state is watched


def test_an_older_key_has_no_move() -> None:
    raw = json.loads(schema.encode_leader_and_isr(FULL_STATE))
    del raw["moving"]
    assert schema.decode_leader_and_isr(json.dumps(raw).encode()).moving is None


def test_a_throttle_round_trips_through_the_store_and_an_invalid_one_is_rejected() -> None:
    for throttle in (schema.Throttle(4_096), schema.Throttle(None)):
        assert schema.decode_throttle(schema.encode_throttle(throttle)) == throttle
    for wrong in (0, 1_023, "fast"):
        with pytest.raises(ValueError, match="at least 1024"):
            schema.decode_throttle(json.dumps({"bytes_per_second": wrong}).encode())


def test_a_move_has_its_added_and_removed_replicas() -> None:
    moving = Moving("grow-1", (3, 1, 2), (4, 1, 5))
    assert (moving.adding, moving.leaving) == ((4, 5), (3, 2))
    assert moving.replicas == (3, 1, 2, 4, 5)


def test_keys_identify_their_subject() -> None:
    keys = keys_module.Keys("c")
    partition = TopicPartition("a.b-c", 12)
    assert keys.parse(keys.leader_and_isr(partition)) == keys_module.PartitionKey(partition)
    assert keys.parse(keys.topic("a.b-c")) == keys_module.TopicKey("a.b-c")
    assert keys.parse(keys.broker(3)) == keys_module.BrokerKey(3)
    assert keys.parse(keys.controller_process(3)) == keys_module.ControllerProcessKey(3)
    assert keys.parse(keys.departure(3)) == keys_module.DepartureKey(3)
    assert keys.parse(keys.topic_deletion("t")) == keys_module.TopicDeletionKey("t")
    added, removed = keys.partition_addition("t"), keys.partition_removal("t")
    assert keys.parse(added) == keys_module.PartitionsAdditionKey("t")
    assert keys.parse(removed) == keys_module.PartitionsRemovalKey("t")
    assert keys.parse(keys.operation("op-1")) == keys_module.OperationKey("op-1")
    assert keys.parse(keys.operation_plan("op-1", 2)) == keys_module.OperationPlanKey("op-1", 2)
    assert keys.parse(keys.broker_removal(3)) == keys_module.BrokerRemovalKey(3)
    assert keys.parse(keys.maintenance(3)) == keys_module.MaintenanceKey(3)
    assert keys.parse(keys.producer("a.b-c")) == keys_module.NamedProducerKey("a.b-c")
    assert keys.parse(keys.producer_ids) is None
    assert isinstance(keys.parse(keys.controller), keys_module.ControllerKey)
    assert isinstance(keys.parse(keys.controller_epoch), keys_module.ControllerEpochKey)
    assert isinstance(keys.parse(keys.cluster), keys_module.ClusterKey)
    assert isinstance(keys.parse(keys.throttle), keys_module.ThrottleKey)
    assert keys.parse(keys.root + "of/a/later/version") is None


def test_intents_round_trip_through_the_store() -> None:
    added = PartitionsAddition("id", 3, ((1, 2), (2, 3)), "a1")
    removed = PartitionsRemoval("id", 3, "a1")
    assert decode_partitions_addition(encode_intent(added)) == added
    assert decode_partitions_removal(encode_intent(removed)) == removed


def test_operations_round_trip_through_the_store() -> None:
    entry = operations.OperationEntry(
        kind=operations.OperationKind.REVERSAL,
        request="{}",
        requested_by="ann",
        requested_from="ipv4:10.1.1.1:99",
        requested_at_ms=1,
        trace_id="a1",
        state=operations.OperationState.FAILED,
        reason="why",
        ended_at_ms=2,
        moves=3,
        chunks=4,
        replicas_to_add=5,
        moves_done=6,
        moves_dropped=7,
    )
    moves = (operations.OperationMove("t", "id", 4, (1, 2), (3,)),)
    mark = operations.BrokerMark("ann", "op")
    assert operations.decode_operation(operations.encode_operation(entry)) == entry
    assert operations.decode_moves(operations.encode_moves(moves)) == moves
    assert operations.decode_mark(operations.encode_mark(mark)) == mark


async def test_commands_round_trip_over_the_wire() -> None:
    command = LeaderAndIsrCommand(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=13,
        full_state=True,
        partitions=[
            PartitionCommand(TopicPartition("t", 4), STATE, 77, {"segment_ms": "1000"}, 70)
        ],
        leaders={3: LeaderAddress("h:3", 13)},
        store_revision=80,
        change=Change("c2-full-3-1", Cause.NEW_CONTROLLER, 1_000),
        unreadable_topics=("u",),
    )
    wire = await codec.leader_and_isr_to_wire(command)
    carried = await codec.leader_and_isr_from_wire(wire)
    assert carried == command
    assert carried.change == command.change
    stop = StopReplicaCommand(
        1, 2, 13, [StopPartition(TopicPartition("t", 4), "i", NO_EPOCH, 77, delete=True)]
    )
    assert await codec.stop_replica_from_wire(await codec.stop_replica_to_wire(stop)) == stop


async def test_results_round_trip_over_the_wire() -> None:
    result = CommandResult(partitions=[PartitionResult("i", 4, 77, None)])
    wire = await codec.leader_and_isr_result_to_wire(result)
    assert await codec.result_from_wire(wire) == result
    rejected = CommandResult(
        errors.TidelogError(errors.ErrorCode.STALE_CONTROLLER_EPOCH, "too old")
    )
    answer = await codec.stop_replica_result_to_wire(rejected)
    found = (await codec.result_from_wire(answer)).error
    assert found is not None
    assert found.code is errors.ErrorCode.STALE_CONTROLLER_EPOCH


async def test_replica_descriptions_round_trip_without_missing_ones() -> None:
    ask = DescribeReplicasCommand(1, 2, 13, [("i", 4), ("i", 5)])
    request = await codec.describe_replicas_to_wire(ask)
    assert await codec.describe_replicas_from_wire(request) == ask
    cut = ReplicaSummary("i", 5, 77, 2, 9, ((0, 2), (3, 8)), LogExtent(12, ((0, 2), (4, 11))))
    cut = cut._replace(high_watermark=6, size_bytes=0, lacks=((7, 900), (8, 0)))
    found = DescribeReplicasResult(replicas=[cut])
    wire = await codec.describe_replicas_result_to_wire(found, ask.partitions)
    assert [p.partition for p in wire.partitions] == [4, 5]
    assert error_from_wire(wire.partitions[0].error).code is errors.ErrorCode.UNKNOWN_TOPIC_ID
    assert await codec.describe_replicas_result_from_wire(wire) == found


async def test_a_replica_requested_twice_is_described_once() -> None:
    """Otherwise the answer would repeat all epochs of its log."""
    ask = DescribeReplicasCommand(1, 2, 13, [("i", 4), ("i", 5), ("i", 4)])
    request = await codec.describe_replicas_to_wire(ask)
    assert (await codec.describe_replicas_from_wire(request)).partitions == [("i", 4), ("i", 5)]


def test_a_partition_without_a_leader_keeps_its_last_members() -> None:
    leaderless = schema.unassigned(schema.TopicEntry("i", 1, 3), (1, 2, 3), 2)
    assert (leaderless.leader, leaderless.isr, leaderless.leader_epoch) == (NO_LEADER, (), NO_EPOCH)
