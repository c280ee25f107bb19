"""What a follower names in the requests of a fetch session, and what it leaves out."""

from itertools import count

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import EpochEnd
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replication.follower_session import EpochPair, FollowerSession
from tidelog_broker.replication.transport import NO_SESSION, ReplicaFetchResult

FIRST, SECOND = ReplicaKey("topic", 0), ReplicaKey("topic", 1)
AT_4 = FetchPosition(1, 5, 4, 5, 0, 0)
AT_5 = AT_4._replace(fetch_offset=5)


def opened(*, synced: bool = False) -> FollowerSession:
    """Session 7, in which both partitions were named at offset 4."""
    session = FollowerSession(count(1), synced=synced)
    session.bind(EpochPair(102, 101))
    session.next({FIRST: AT_4, SECOND: AT_4})
    assert session.answered(7, [])
    return session


def named_after(before: FetchPosition, now: FetchPosition, *, synced: bool = False) -> bool:
    session = opened(synced=synced)
    session.next({FIRST: before})
    session.answered(7, [])
    return FIRST in session.next({FIRST: now}).named


def test_the_first_request_names_everything_and_opens_a_session() -> None:
    session = FollowerSession(count(3), synced=False)
    asked = session.next({FIRST: AT_4, SECOND: AT_5})
    assert asked == (NO_SESSION, 3, {FIRST: AT_4, SECOND: AT_5}, ())


def test_the_next_request_names_only_moved_partitions() -> None:
    asked = opened().next({FIRST: AT_5, SECOND: AT_4})
    assert asked == (7, 1, {FIRST: AT_5}, [])


def test_requests_are_counted() -> None:
    session = opened()
    sequences = []
    for _ in range(3):
        sequences.append(session.next({}).session_sequence)
        session.answered(7, [])
    assert sequences == [1, 2, 3]


def test_a_new_epoch_is_named() -> None:
    assert named_after(AT_4, AT_4._replace(leader_epoch=6))


def test_another_last_epoch_is_named() -> None:
    assert named_after(AT_4, AT_4._replace(last_fetched_epoch=4))


def test_a_need_for_producers_is_named() -> None:
    assert named_after(AT_4, AT_4._replace(needs_producers=True))


def test_synced_ends_are_named_only_for_synced_partitions() -> None:
    flushed = AT_4._replace(flushed_offset=4)
    assert named_after(AT_4, flushed, synced=True)
    assert not named_after(AT_4, flushed, synced=False)


def test_a_moved_log_start_alone_is_not_named() -> None:
    assert not named_after(AT_4, AT_4._replace(log_start_offset=2), synced=True)


def test_an_unfollowed_partition_is_forgotten_once() -> None:
    session = opened()
    assert session.next({FIRST: None}).forgotten == [FIRST]
    session.answered(7, [])
    assert session.next({FIRST: None}).forgotten == []


def test_a_partition_that_comes_back_is_named_though_its_position_is_unchanged() -> None:
    session = opened()
    session.renew(FIRST)
    assert session.next({FIRST: AT_4}).named == {FIRST: AT_4}


def test_a_partition_answered_with_an_error_is_named_again() -> None:
    session = opened()
    session.next({})
    error = TidelogError(ErrorCode.FENCED_LEADER_EPOCH, "as the test wants it")
    session.answered(7, [ReplicaFetchResult(FIRST, None, error, 0)])
    assert session.next({FIRST: AT_4, SECOND: AT_4}).named == {FIRST: AT_4}


def test_a_partition_answered_with_a_divergence_is_named_again() -> None:
    session = opened()
    session.next({})
    parts = FetchAnswer(0, 0, 5, (), EpochEnd(4, 4))
    session.answered(7, [ReplicaFetchResult(FIRST, parts, None, 0)])
    assert session.next({FIRST: AT_4}).named == {FIRST: AT_4}


def test_without_an_answer_everything_is_named_again_in_a_later_session() -> None:
    session = opened()
    session.next({FIRST: AT_5})
    session.reset()
    asked = session.next({FIRST: AT_5, SECOND: AT_4})
    assert asked == (NO_SESSION, 2, {FIRST: AT_5, SECOND: AT_4}, ())


def test_a_leader_that_does_not_know_the_session_ends_it() -> None:
    session = opened()
    session.next({})
    assert not session.answered(NO_SESSION, [])
    assert session.next({SECOND: AT_4}).session_id == NO_SESSION


def test_the_answer_of_another_session_ends_it() -> None:
    session = opened()
    session.next({})
    assert not session.answered(8, [])
    assert not session.is_open


def test_another_incarnation_of_either_end_ends_it() -> None:
    for epochs in (EpochPair(103, 101), EpochPair(102, 103)):
        session = opened()
        session.bind(epochs)
        assert not session.is_open


def test_the_same_incarnations_keep_it() -> None:
    session = opened()
    session.bind(EpochPair(102, 101))
    assert session.is_open


def test_without_partitions_there_is_no_request() -> None:
    session = opened()
    assert session.has_partitions({FIRST: None})
    assert not session.has_partitions({FIRST: None, SECOND: None})
    assert session.has_partitions({FIRST: None, SECOND: None, ReplicaKey("topic", 2): AT_4})
