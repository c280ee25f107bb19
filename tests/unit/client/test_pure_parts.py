import random
import subprocess
import sys
from typing import Any

import pytest
from crc32c import crc32c

from tidelog.client.cluster_metadata import parse_bootstrap
from tidelog.client.metadata_cache import MetadataCache
from tidelog.client.partitioner import StickyPartitioner, partition_for_key
from tidelog.client.record_columns import (
    RecordColumns,
    check_timestamps,
    checked_headers,
    cut,
    split_by_key,
)
from tidelog.client.record_serializer import check_content
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import TidelogError
from tidelog.model import LeaderHint, TopicPartition
from tidelog.v1 import broker_pb2

SEA = TopicPartition("sea", 0)


def answer(
    leader: int, epoch: int, *, topic_id: str = "id", create_revision: int = 1, **rest: Any
) -> broker_pb2.MetadataResponse:
    return broker_pb2.MetadataResponse(
        brokers=[
            broker_pb2.BrokerEndpoint(broker_id=b, address=f"b{b}:1", broker_epoch=b)
            for b in (1, 2)
        ],
        topics=[
            broker_pb2.TopicMetadata(
                name="sea",
                topic_id=topic_id,
                create_revision=create_revision,
                partitions=[
                    broker_pb2.PartitionMetadata(
                        leader=leader, leader_epoch=epoch, unclean_leader_epoch=-1
                    )
                ],
            )
        ],
        **rest,
    )


@pytest.mark.rule("zombie-resets-no-client")
def test_an_older_leader_epoch_is_ignored() -> None:
    cache = MetadataCache()
    cache.apply(answer(1, 5))
    cache.apply(answer(2, 4))
    assert cache.leader(SEA) == Leader(1, 5, "b1:1", "id")


def resized(leader: int, epoch: int, count: int, revision: int) -> broker_pb2.MetadataResponse:
    response = answer(leader, epoch)
    topic = response.topics[0]
    topic.partition_count, topic.revision = count, revision
    for partition in range(1, count):
        topic.partitions.append(broker_pb2.PartitionMetadata(partition=partition, leader=leader))
    return response


def count_after(*answers: broker_pb2.MetadataResponse) -> int:
    cache = MetadataCache()
    for response in answers:
        cache.apply(response)
    known = cache.topic("sea")
    assert known is not None
    return known.partitions


def test_a_partition_counts_before_its_replicas_are_chosen() -> None:
    """A key goes to the same partition as when all partitions have replicas."""
    response = resized(1, 5, 3, 10)
    del response.topics[0].partitions[1:]
    assert count_after(response) == 3


@pytest.mark.parametrize("counts", [(3, 2, 3), (2, 3, 2)], ids=["removed", "added"])
def test_the_number_of_partitions_is_that_of_the_newest_revision(
    counts: tuple[int, int, int],
) -> None:
    before, now, late = counts
    answers = (resized(1, 5, before, 10), resized(1, 5, now, 20), resized(1, 5, late, 10))
    assert count_after(*answers) == now


def test_stale_metadata_may_still_have_a_later_leader() -> None:
    cache = MetadataCache()
    cache.apply(resized(1, 5, 2, 20))
    cache.apply(resized(2, 6, 1, 10))
    assert cache.leader(SEA) == Leader(2, 6, "b2:1", "id")


def test_another_topic_id_resets_the_leader_epoch() -> None:
    cache = MetadataCache()
    cache.apply(answer(1, 5))
    cache.apply(answer(2, 1, topic_id="new", create_revision=2))
    assert cache.leader(SEA) == Leader(2, 1, "b2:1", "new")


def test_a_newer_hint_is_used_at_once_and_an_older_one_is_not() -> None:
    cache = MetadataCache()
    cache.apply(answer(1, 5))
    assert not cache.apply_hint(SEA, "id", LeaderHint(2, 5, "b2:1"))
    assert cache.apply_hint(SEA, "id", LeaderHint(3, 6, "b3:1"))
    assert cache.leader(SEA) == Leader(3, 6, "b3:1", "id", is_hint=True)


def test_no_leader_is_none() -> None:
    cache = MetadataCache()
    cache.apply(answer(-1, 5))
    assert cache.leader(SEA) is None
    assert cache.leader(TopicPartition("sea", 9)) is None


def test_an_older_incarnation_of_a_broker_does_not_restore_its_address() -> None:
    cache = MetadataCache()
    cache.apply(answer(1, 5))
    old = broker_pb2.BrokerEndpoint(broker_id=1, address="old:1", broker_epoch=0)
    cache.apply(broker_pb2.MetadataResponse(brokers=[old]))
    assert "old:1" not in cache.addresses()


def test_an_older_controller_epoch_is_ignored() -> None:
    cache = MetadataCache()
    for epoch in (3, 2):
        controller = broker_pb2.ControllerEndpoint(address=f"c{epoch}:1", controller_epoch=epoch)
        cache.apply(broker_pb2.MetadataResponse(controller=controller))
    assert cache.controller_address == "c3:1"


@pytest.mark.parametrize(
    "wrong", ["", "host", "host:", ":7500", "host:99999", "a..b:1", "host:١", ["a:1", "b"]]
)
def test_an_invalid_bootstrap_address_is_rejected(wrong: Any) -> None:
    with pytest.raises(TidelogError, match="host:port"):
        parse_bootstrap(wrong)


def test_bootstrap_addresses_may_be_one_string() -> None:
    assert parse_bootstrap("a:1, b:2") == ["a:1", "b:2"]


def test_a_key_goes_to_the_same_partition_in_every_process() -> None:
    assert partition_for_key(b"tide", 1000) == crc32c(b"tide") % 1000
    code = "from tidelog.client.partitioner import *; print(partition_for_key(b'tide', 1000))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == partition_for_key(b"tide", 1000)


def test_keys_spread_over_partitions() -> None:
    counts = [0] * 6
    for number in range(6000):
        counts[partition_for_key(b"user-%d" % number, 6)] += 1
    assert min(counts) > 800


def test_the_sticky_partitioner_moves_in_turn_over_partitions_with_a_leader() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.move("sea", [0, 2, 5])
    assert sticky.current("sea") == first
    assert {first, *(sticky.move("sea", [0, 2, 5]) for _ in range(2))} == {0, 2, 5}
    assert sticky.move("sea", [3]) == 3


def test_backoffs_double_up_to_their_limit_and_differ() -> None:
    backoff = Backoff(random.Random(1), 50, 1000)
    for attempt, ceiling in ((1, 50), (2, 100), (3, 200), (9, 1000), (999, 1000)):
        pauses = {backoff.pause_ms(attempt) for _ in range(50)}
        assert ceiling / 2 <= min(pauses)
        assert max(pauses) <= ceiling
        assert len(pauses) > 10


def test_a_route_opens_to_a_newer_epoch_and_after_its_pause() -> None:
    route, backoff = Route(), Backoff(random.Random(1), 50, 50)
    route.failed(Leader(1, 5, "a:1", ""), 0, backoff, stale=True)
    assert not route.open_to(Leader(1, 5, "a:1", ""), 10)
    assert route.open_to(Leader(2, 6, "b:1", ""), 10)
    assert route.open_to(Leader(1, 5, "a:1", ""), 50)
    assert route.wants_metadata(Leader(1, 5, "a:1", ""))
    assert not route.wants_metadata(Leader(2, 6, "b:1", ""))


def failing_route(*failures: tuple[Leader, int]) -> Route:
    """A route after `failures`: pairs of leader and time (ms)."""
    route, backoff = Route(), Backoff(random.Random(1), 50, 1_000)
    for leader, now_ms in failures:
        route.failed(leader, now_ms, backoff, stale=True)
    return route


def test_requests_that_fail_together_pause_a_route_once() -> None:
    leader = Leader(1, 5, "a:1", "")
    route = failing_route(*((leader, now_ms) for now_ms in (0, 1, 1, 2, 2)))
    assert (route.failures, route.open_to(leader, 50)) == (1, True)


def test_successive_failures_make_longer_pauses() -> None:
    leader = Leader(1, 5, "a:1", "")
    assert failing_route((leader, 0), (leader, 60), (leader, 200)).failures == 3


def test_a_leader_does_not_inherit_the_failures_of_its_predecessor() -> None:
    previous, leader = Leader(1, 5, "a:1", ""), Leader(2, 6, "b:1", "")
    route = failing_route(
        (previous, 0), (previous, 60), (previous, 200), (previous, 500), (leader, 600)
    )
    assert (route.failures, route.open_to(leader, 650)) == (1, True)


def test_a_late_failure_of_a_previous_leader_pauses_nothing() -> None:
    previous, leader = Leader(1, 5, "a:1", ""), Leader(2, 6, "b:1", "")
    assert failing_route((previous, 0), (leader, 10), (previous, 100)).open_to(leader, 100)


def test_chunks_are_as_large_as_allowed() -> None:
    columns = RecordColumns([bytes(1024)] * 130, None, 5)
    pieces = list(cut(columns, columns.sizes(), 65536))
    assert [(len(piece.values), size) for piece, size in pieces] == [
        (64, 65536),
        (64, 65536),
        (2, 2048),
    ]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    columns = RecordColumns([b"a", bytes(100), b"b", None], [None, b"k", None, None], [1, 2, 3, 4])
    pieces = [piece for piece, _ in cut(columns, columns.sizes(), 10)]
    assert [len(piece.values) for piece in pieces] == [1, 1, 2]
    assert pieces[2] == RecordColumns([b"b", None], [None, None], [3, 4])


def test_empty_records_do_not_make_an_endless_batch() -> None:
    columns = RecordColumns([b""] * 20_000, None, 5)
    assert [len(piece.values) for piece, _ in cut(columns, columns.sizes(), 10)] == [16_384, 3_616]


def test_records_are_split_by_key_in_their_order() -> None:
    columns = RecordColumns([b"1", b"2", b"3", b"4"], [b"a", None, b"b", b"a"], [1, 2, 3, 4])
    split = dict(part for part in split_by_key(columns, lambda key: key[0]) if part is not None)
    assert list(split[97].values) == [b"1", b"4"]
    assert list(split[98].values) == [b"3"]
    assert list(split[None].values) == [b"2"]


def check_all(columns: RecordColumns) -> None:
    columns.check_shape()
    for _ in columns.check_in_slices():
        pass


@pytest.mark.parametrize("wrong", [["text"], [b"a", 3], [bytearray(b"a")], b"bytes", "text"])
def test_values_that_are_not_bytes_are_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="bytes"):
        check_all(RecordColumns(wrong, None, 5))


def test_a_key_or_a_value_that_is_not_bytes_is_named() -> None:
    with pytest.raises(TypeError, match=r"^key is str; it must be bytes or None"):
        check_content("key", "text")
    with pytest.raises(TypeError, match=r"^values\[1\] is int"):
        check_all(RecordColumns([b"a", 3], None, 5))  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^keys\[20000\] is str"):
        check_all(RecordColumns([b"v"] * 20_001, [b"k"] * 20_000 + ["k"], 5))  # type: ignore[list-item]


def test_wrong_timestamps_and_headers_are_rejected() -> None:
    with pytest.raises(TypeError):
        check_timestamps([1.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="from 0"):
        check_timestamps([-1])
    for headers in ([("a", "text")], [("a",)], [(b"a", b"")], ["ab"]):
        with pytest.raises(TypeError):
            checked_headers(headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address",
    [
        "http://h:1",
        "::1:7501",
        "a:1;b:2",
        "h:1/",
        "[::1:7501",
        "[x]:1",
        "a b:1",
        "h\x00:1",
        "a@b:1",
    ],
)
def test_an_invalid_address_is_rejected_at_the_call(address: str) -> None:
    with pytest.raises(TidelogError, match="is not host:port, as in"):
        parse_bootstrap(address)


@pytest.mark.parametrize("address", ["[::1]:7501", "broker_1.internal:7501", "b\u00fccher.org:1"])
def test_a_valid_address_is_accepted(address: str) -> None:
    assert parse_bootstrap(f" {address} ,") == [address]
