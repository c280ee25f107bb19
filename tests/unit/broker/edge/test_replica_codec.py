from hypothesis import given
from hypothesis import strategies as st

from tidelog.batch import new_fence, stamp
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_LEADER, EpochEnd, LeaderHint
from tidelog.v1 import replica_pb2 as pb
from tidelog_broker.core.fetch_messages import (
    MAX_REPORTED_DIGESTS,
    DivergedRange,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReportedDigest,
)
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.range_digest import BatchSummary, RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.edge.replica_codec import (
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)
from tidelog_runtime.cooperative import ITEMS_PER_SLICE
from unit.broker.fake_log import TOPIC_ID, sent_by, stamped
from unit.loop_turns import Turns, in_one_turn

KEY = ReplicaKey(TOPIC_ID, 3)

offsets = st.integers(0, 2**63 - 1)
epochs = st.integers(0, 2**31 - 1)
epochs_or_none = st.integers(-1, 2**31 - 1)
positions = st.builds(
    FetchPosition, st.just(NO_LEADER), epochs, offsets, epochs_or_none, offsets, offsets
)
entries = st.builds(ReplicaFetchEntry, st.just(KEY), positions, st.integers(0, 2**31 - 1))


def over_the_wire(result: ReplicaFetchResult) -> ReplicaFetchResult:
    wire = in_one_turn(response_to_wire(ReplicaFetchResponse(None, [result])))
    received = in_one_turn(
        response_from_wire(pb.ReplicaFetchResponse.FromString(wire.SerializeToString()))
    )
    assert received.error is None
    (only,) = received.results
    return only


@given(st.lists(entries, max_size=3), offsets, offsets, offsets, st.booleans())
def test_a_request_arrives_as_it_was_sent(
    requested: list[ReplicaFetchEntry],
    follower_epoch: int,
    leader_epoch: int,
    session_id: int,
    synced: bool,
) -> None:
    request = ReplicaFetchRequest(
        2,
        follower_epoch,
        leader_epoch,
        500,
        1,
        4096,
        requested,
        session_id,
        2**63 - 1 - session_id,
        synced,
        [entry.replica for entry in requested],
    )
    wire = pb.ReplicaFetchRequest.FromString(
        in_one_turn(request_to_wire(request)).SerializeToString()
    )
    assert in_one_turn(request_from_wire(wire)) == request


def test_a_response_names_its_session() -> None:
    wire = in_one_turn(response_to_wire(ReplicaFetchResponse(None, [], 2**40)))
    assert in_one_turn(response_from_wire(wire)) == ReplicaFetchResponse(None, [], 2**40)


REPORTED = ReportedDigest(
    KEY,
    RangeDigest(4096, 8200, 2**64 - 1),
    tuple(BatchSummary.of(stamped(offset, 5).header) for offset in (4096, 4097)),
    ("00000000000000000000.log",),
)


def request_with(*reported: ReportedDigest) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(2, 7, 6, 500, 1, 4096, [], digests=reported)


def test_digests_arrive_as_they_were_sent() -> None:
    given = REPORTED._replace(batches=(), contents=(stamped(4096, 5),))
    wire = in_one_turn(request_to_wire(request_with(REPORTED, given)))
    received = in_one_turn(
        request_from_wire(pb.ReplicaFetchRequest.FromString(wire.SerializeToString()))
    )
    assert received.digests == (REPORTED, given)
    diverged = DivergedRange(KEY, 4096, 8200), DivergedRange(KEY, 4, 8, wants_contents=True)
    asked = ReplicaFetchResponse(None, [], 9, diverged=diverged)
    answer = in_one_turn(response_to_wire(asked))
    again = pb.ReplicaFetchResponse.FromString(answer.SerializeToString())
    assert in_one_turn(response_from_wire(again)) == asked


def test_a_digest_of_another_definition_is_not_compared() -> None:
    """An earlier or later release may send one."""
    wire = in_one_turn(request_to_wire(request_with(REPORTED, REPORTED)))
    wire.digests[0].version = 2
    assert in_one_turn(request_from_wire(wire)).digests == (REPORTED,)


def test_no_more_digests_are_taken_than_a_request_may_have() -> None:
    wire = in_one_turn(request_to_wire(request_with(*[REPORTED] * (MAX_REPORTED_DIGESTS + 1))))
    assert len(in_one_turn(request_from_wire(wire)).digests) == MAX_REPORTED_DIGESTS


def test_data_arrives_as_it_was_sent() -> None:
    batches = [stamped(0, 5), stamped(1, 5)]
    result = ReplicaFetchResult(KEY, FetchAnswer(1, 0, 5, batches), None, 0)
    assert over_the_wire(result) == result


def test_a_divergence_arrives_also_where_no_epoch_is_shared() -> None:
    for end in (EpochEnd(4, 17), EpochEnd(-1, 0)):
        answer = FetchAnswer(1, 0, 5, [], end)
        assert over_the_wire(ReplicaFetchResult(KEY, answer, None, 0)).answer == answer


async def test_many_producers_are_converted_with_yields() -> None:
    known = ProducerStates()
    for producer in range(1, 10 * ITEMS_PER_SLICE):
        batch = sent_by(producer, 0)
        known.note(stamp(batch, base_offset=producer, leader_epoch=4, append_time_ms=9).header)
    answer = FetchAnswer(1, 0, 5, [], None, known)
    response = ReplicaFetchResponse(None, [ReplicaFetchResult(KEY, answer, None, 0)])
    async with Turns() as turns:
        wire = await response_to_wire(response)
        assert turns.taken() >= 9
        (received,) = (await response_from_wire(wire)).results
        assert turns.taken() >= 9
    assert received.answer is not None
    assert received.answer.producers is not None
    assert received.answer.producers.entries == known.entries


def test_producers_below_the_start_arrive_and_no_producers_differ_from_unknown_ones() -> None:
    known = ProducerStates()
    for sequence in range(7):
        batch = sent_by(7, sequence, epoch=2, count=3)
        known.note(stamp(batch, base_offset=3 * sequence, leader_epoch=4, append_time_ms=9).header)
    known.note(new_fence(FIRST_NAMED_PRODUCER_ID, 3, 9).header)
    for states in (known, ProducerStates()):
        answer = FetchAnswer(1, 0, 5, [], producers=states)
        received = over_the_wire(ReplicaFetchResult(KEY, answer, None, 0)).answer
        assert received is not None
        assert received.producers is not None
        assert received.producers.entries == states.entries
    answer = FetchAnswer(1, 0, 5, [])
    assert over_the_wire(ReplicaFetchResult(KEY, answer, None, 0)).answer == answer


def test_an_error_arrives_with_its_hint_and_the_leaders_log_start() -> None:
    error = TidelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE, "out of range", LeaderHint(3, 6, "10.0.0.3:7500")
    )
    received = over_the_wire(ReplicaFetchResult(KEY, None, error, 40))
    assert received.answer is None
    assert received.error is not None
    assert (received.error.code, received.error.message) == (error.code, error.message)
    assert received.error.leader == error.leader
    assert received.log_start_offset == 40
