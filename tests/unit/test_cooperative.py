"""Long work is done in slices."""

from collections.abc import Generator

import pytest

from tidelog.model import TopicPartition
from tidelog.v1.replica_control_pb2 import LeaderAndIsrRequest
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
)
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.edge import replica_codec
from tidelog_runtime import replica_control_codec
from tidelog_runtime.cooperative import (
    ITEMS_PER_SLICE,
    QUICK_ITEMS_PER_SLICE,
    SLICE_SECONDS,
    TimeSlices,
    map_yielding,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    PartitionCommand,
    PartitionResult,
    ReplicaSummary,
)
from unit.loop_turns import Turns, in_one_turn

TOPIC_ID = "A" * 22
MANY = 10 * ITEMS_PER_SLICE


async def test_the_loop_runs_after_every_slice() -> None:
    async with Turns() as turns:
        assert await map_yielding(str, range(MANY)) == [str(n) for n in range(MANY)]
        assert turns.taken() == MANY // ITEMS_PER_SLICE - 1


@pytest.mark.parametrize("count", [0, 1, ITEMS_PER_SLICE])
def test_small_inputs_are_converted_at_once(count: int) -> None:
    assert in_one_turn(map_yielding(str, range(count))) == [str(n) for n in range(count)]


async def test_a_slice_of_time_ends_once_it_is_used_up() -> None:
    now = 0.0
    slices = TimeSlices(lambda: now)
    async with Turns() as turns:
        for _ in range(3):
            for _ in range(9):
                now += SLICE_SECONDS / 10
                await slices.checkpoint()
            assert turns.taken() == 0
            now += SLICE_SECONDS / 10
            await slices.checkpoint()
            assert turns.taken() == 1


async def test_steps_run_with_a_checkpoint_between_them() -> None:
    now = 0.0

    def steps() -> Generator[None, None, str]:
        nonlocal now
        for _ in range(3):
            now += SLICE_SECONDS
            yield
        return "made"

    async with Turns() as turns:
        assert await TimeSlices(lambda: now).run(steps()) == "made"
        assert turns.taken() == 3


async def test_a_full_state_blocks_neither_end() -> None:
    many = 10 * QUICK_ITEMS_PER_SLICE
    state = LeaderAndIsr(TOPIC_ID, (1, 2), 1, 1, 5, (Member(1, 10), Member(2, 11)), (), 1)
    partitions = [PartitionCommand(TopicPartition("sea", n), state, 7, {}) for n in range(many)]
    command = LeaderAndIsrCommand(
        1, 2, 13, full_state=True, partitions=partitions, leaders={}, store_revision=80
    )
    result = CommandResult(partitions=[PartitionResult(TOPIC_ID, n, 7, None) for n in range(many)])
    pauses = many // QUICK_ITEMS_PER_SLICE - 1
    async with Turns() as turns:
        wire = await replica_control_codec.leader_and_isr_to_wire(command)
        assert pauses <= turns.taken() <= pauses + 1
        data = await replica_control_codec.leader_and_isr_to_bytes(command)
        assert turns.taken() >= pauses
        assert LeaderAndIsrRequest.FromString(data) == wire
        known = await replica_control_codec.leader_and_isr_from_wire(wire, lambda *_: state)
        assert known == command
        assert pauses <= turns.taken() <= pauses + 1
        # A state that is new to the broker takes longer to read.
        assert await replica_control_codec.leader_and_isr_from_wire(wire) == command
        assert turns.taken() >= 5 * pauses
        answer = await replica_control_codec.leader_and_isr_result_to_wire(result)
        assert pauses <= turns.taken() <= pauses + 1
        assert await replica_control_codec.result_from_wire(answer) == result
        assert pauses <= turns.taken() <= pauses + 1


async def test_descriptions_of_logs_with_many_epochs_do_not_block_the_loop() -> None:
    epochs = tuple((epoch, epoch) for epoch in range(1_000))
    logs = [ReplicaSummary(TOPIC_ID, n, 7, 0, 1_000, epochs) for n in range(ITEMS_PER_SLICE)]
    named = [(log.topic_id, log.partition) for log in logs]
    async with Turns() as turns:
        found = DescribeReplicasResult(replicas=logs)
        wire = await replica_control_codec.describe_replicas_result_to_wire(found, named)
        assert turns.taken() >= ITEMS_PER_SLICE - 1
    assert await replica_control_codec.describe_replicas_result_from_wire(wire) == found


async def test_the_first_fetch_of_a_session_blocks_neither_end() -> None:
    keys = [ReplicaKey(TOPIC_ID, n) for n in range(MANY)]
    position = FetchPosition(-1, 5, 0, -1, 0, 0)
    request = ReplicaFetchRequest(
        2, 11, 10, 500, 1, 4096, [ReplicaFetchEntry(key, position, 1024) for key in keys], 0, 1
    )
    answer = FetchAnswer(0, 0, 5, [])
    response = ReplicaFetchResponse(
        None, [ReplicaFetchResult(key, answer, None, 0) for key in keys], 1
    )
    least = MANY // ITEMS_PER_SLICE - 1
    async with Turns() as turns:
        wire = await replica_codec.request_to_wire(request)
        assert turns.taken() >= least
        requested = await replica_codec.request_from_wire(wire)
        assert [entry.replica for entry in requested.entries] == keys
        assert turns.taken() >= least
        answered = await replica_codec.response_to_wire(response)
        assert turns.taken() >= least
        assert await replica_codec.response_from_wire(answered) == response
        assert turns.taken() >= least
