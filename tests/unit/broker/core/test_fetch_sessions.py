"""Which requests of followers belong to a session, and how many sessions a leader keeps."""

import pytest

from tidelog.model import NO_OFFSET
from tidelog_broker.core import fetch_sessions
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResult,
)
from tidelog_broker.core.fetch_sessions import (
    MANY_RECOUNTED,
    RECOUNT_INTERVAL_MS,
    FetchSession,
    FetchSessions,
)
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.listener import ReplicaWatch
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from unit.broker.fake_log import NAME, TOPIC_ID, FakeLog, leader

KEY = ReplicaKey(TOPIC_ID, NAME.partition)


class Watched:
    def __init__(self) -> None:
        self.partitions: list[tuple[Partition, ReplicaWatch]] = []

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None:
        self.partitions.append((partition, watch))

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None:
        self.partitions.remove((partition, watch))


class Leader:
    def __init__(self) -> None:
        self.watched = Watched()
        self.sessions = FetchSessions(self.watched)

    def ask(
        self,
        session_id: int,
        sequence: int,
        *,
        follower: int = 2,
        lives: tuple[int, int] = (102, 101),
        synced: bool = False,
    ) -> FetchSession | None:
        """A request that is answered at once."""
        session = self.sessions.of(
            ReplicaFetchRequest(follower, *lives, 0, 0, 1, (), session_id, sequence, synced), 1
        )
        if session is not None:
            session.serving = False
        return session

    def open(self, number: int = 1, *, follower: int = 2, synced: bool = False) -> FetchSession:
        session = self.ask(0, number, follower=follower, synced=synced)
        assert session is not None
        return session


def record(session: FetchSession, partition: Partition) -> None:
    session.record(ReplicaFetchEntry(KEY, FetchPosition(1, 5, 0, -1, 0, 0), 100), partition)


def test_the_requests_of_a_session_are_taken_in_order() -> None:
    leader_ = Leader()
    session = leader_.open()
    assert [leader_.ask(session.id, sequence) for sequence in (1, 2, 3)] == [session] * 3


def test_a_repeated_request_is_not_taken_and_the_session_continues() -> None:
    leader_ = Leader()
    session = leader_.open()
    leader_.ask(session.id, 1)
    assert leader_.ask(session.id, 1) is None
    assert leader_.ask(session.id, 2) is session


@pytest.mark.rule("fetch-session-bound-to-incarnations")
def test_a_gap_ends_the_session() -> None:
    leader_ = Leader()
    session = leader_.open()
    assert leader_.ask(session.id, 2) is None
    assert leader_.ask(session.id, 1) is None


def test_a_request_before_the_answer_of_the_last_one_ends_the_session() -> None:
    leader_ = Leader()
    session = leader_.open()
    session.serving = True
    assert leader_.ask(session.id, 1) is None
    assert session.ended


def test_a_new_session_replaces_the_previous_one() -> None:
    leader_ = Leader()
    previous, present = leader_.open(1), leader_.open(2)
    assert previous.ended
    assert leader_.ask(previous.id, 1) is None
    assert leader_.ask(present.id, 1) is present
    assert len(leader_.sessions) == 1


def test_a_late_or_repeated_opening_does_not_replace_a_newer_session() -> None:
    leader_ = Leader()
    present = leader_.open(2)
    assert leader_.ask(0, 1) is None
    assert leader_.ask(0, 2) is None
    assert leader_.ask(present.id, 1) is present


def test_an_opening_is_late_also_when_the_newer_session_has_ended() -> None:
    leader_ = Leader()
    leader_.open(2).end()
    assert leader_.ask(0, 1) is None
    assert leader_.ask(0, 3) is not None


@pytest.mark.rule("fetch-session-bound-to-incarnations")
@pytest.mark.parametrize("lives", [(103, 101), (102, 103)])
def test_a_session_is_bound_to_the_broker_epochs_of_both_ends(lives: tuple[int, int]) -> None:
    leader_ = Leader()
    session = leader_.open()
    assert leader_.ask(session.id, 1, lives=lives) is None


def test_a_new_incarnation_of_the_follower_counts_its_sessions_from_scratch() -> None:
    leader_ = Leader()
    previous = leader_.open(9)
    present = leader_.ask(0, 1, lives=(103, 101))
    assert present is not None
    assert previous.ended
    assert leader_.ask(present.id, 1, lives=(103, 101)) is present


def test_a_previous_incarnation_does_not_end_the_session_of_the_present_one() -> None:
    leader_ = Leader()
    present = leader_.open()
    late = leader_.ask(0, 7, lives=(100, 101))
    assert late is not None
    assert late.id == 0
    assert leader_.ask(present.id, 1) is present


def test_synced_partitions_have_a_session_of_their_own() -> None:
    leader_ = Leader()
    one, other = leader_.open(1), leader_.open(2, synced=True)
    assert leader_.ask(one.id, 1) is one
    assert leader_.ask(other.id, 1, synced=True) is other
    assert leader_.ask(one.id, 2, synced=True) is None


def test_beyond_the_bound_the_least_recently_used_session_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSIONS", 2)
    leader_ = Leader()
    first, second = leader_.open(follower=2), leader_.open(follower=3)
    leader_.ask(first.id, 1, follower=2)
    third = leader_.open(follower=4)
    assert len(leader_.sessions) == 2
    assert (first.ended, second.ended, third.ended) == (False, True, False)


def test_an_ended_session_watches_nothing() -> None:
    leader_ = Leader()
    session = leader_.open()
    record(session, leader(FakeLog()))
    assert len(leader_.watched.partitions) == 1
    session.end()
    assert leader_.watched.partitions == []


def test_a_partition_is_watched_once_however_often_it_is_named() -> None:
    leader_ = Leader()
    session = leader_.open()
    partition = leader(FakeLog())
    record(session, partition)
    record(session, partition)
    assert leader_.watched.partitions == [(partition, session)]


def test_the_end_of_a_session_wakes_its_request() -> None:
    session = Leader().open()
    woken: list[bool] = []
    session.wake = lambda: woken.append(True)
    session.end()
    assert woken == [True]


def test_of_very_many_possible_joiners_each_is_reevaluated_now_and_then() -> None:
    """For example, after the restart of a broker that holds thousands of replicas and fetches
    continually.
    """
    session = Leader().open()
    partition = leader(FakeLog())
    assert not partition.is_in_sync(9)
    session.follower = 9
    for number in range(MANY_RECOUNTED + 1):
        key = ReplicaKey(TOPIC_ID, number)
        session.record(ReplicaFetchEntry(key, FetchPosition(1, 5, 0, -1, 0, 0), 100), partition)
    session.news.clear()
    counted = [
        len(session.to_recount(set(), now_ms))
        for now_ms in (1, 2, RECOUNT_INTERVAL_MS, RECOUNT_INTERVAL_MS + 1)
    ]
    assert counted == [MANY_RECOUNTED + 1, 0, 0, MANY_RECOUNTED + 1]
    session.recount.popitem()
    assert len(session.to_recount(set(), RECOUNT_INTERVAL_MS + 2)) == MANY_RECOUNTED


def test_a_log_start_that_moves_during_an_answer_is_sent_with_the_next() -> None:
    session = Leader().open()
    partition = leader(FakeLog([5]))
    record(session, partition)
    for moved, high_watermark in ((True, NO_OFFSET), (False, 1)):
        session.begin_answer()
        if moved:
            session.log_start_moved(partition)
        answer = FetchAnswer(1, 0, 5, [], None)
        session.answered(ReplicaFetchResult(KEY, answer, None, 0))
        assert session.partitions[KEY].high_watermark == high_watermark


def test_a_session_of_very_many_partitions_releases_them_in_slices() -> None:
    leader_ = Leader()
    session = leader_.open(1)
    for number in range(2 * fetch_sessions.DROPPED_AT_ONCE + 1):
        key = ReplicaKey(TOPIC_ID, number)
        entry = ReplicaFetchEntry(key, FetchPosition(1, 5, 0, -1, 0, 0), 100)
        session.record(entry, leader(FakeLog()))
    leader_.open(2)
    assert session.ended
    assert len(session.partitions) == fetch_sessions.DROPPED_AT_ONCE + 1
    assert len(list(leader_.sessions.drop_ended())) == 2
    assert leader_.watched.partitions == []
