"""The figures of replicas are the same values that the full description has."""

from __future__ import annotations

from dataclasses import replace

from tidelog.client.replica_figures import figures_of
from tidelog.inspection.state_reports import FollowerProgress, LeaderState, ServiceState
from tidelog.rpc.message_codec import from_wire, to_wire
from tidelog.v1 import inspect_pb2
from unit.inspection.test_topic_sizes import broker, replica


def described() -> inspect_pb2.DescribeServiceResponse:
    followers = [FollowerProgress(2, lag_records=7), FollowerProgress(3)]
    led = replica(0, leads=True, leader=LeaderState(followers=followers))
    state = broker(1, led, replica(1, leads=False))
    assert state.broker is not None
    known = replace(state.broker, leader_count=1, replica_count=2, disk_free_bytes=9)
    return to_wire(replace(state, broker=known), inspect_pb2.DescribeServiceResponse)


def test_the_read_fields_are_those_of_the_full_description() -> None:
    answer = described()
    read, full = figures_of(answer), from_wire(answer, ServiceState)
    assert read.broker is not None
    assert full.broker is not None
    for name in ("role", "id", "address", "started_at_ms", "now_ms"):
        assert getattr(read, name) == getattr(full, name), name
    for name in ("has_full_state", "replica_count", "leader_count", "disk_free_bytes"):
        assert getattr(read.broker, name) == getattr(full.broker, name), name
    for some, every in zip(read.broker.replicas, full.broker.replicas, strict=True):
        for name in ("topic_id", "partition", "leader_epoch", "log_start_offset"):
            assert getattr(some, name) == getattr(every, name), name
        assert (some.log_end_offset, some.size_bytes) == (every.log_end_offset, every.size_bytes)
        assert (some.leader is None) == (every.leader is None)


def test_the_lag_of_each_follower_is_read() -> None:
    read = figures_of(described())
    assert read.broker is not None
    leader = read.broker.replicas[0].leader
    assert leader is not None
    assert [(f.broker_id, f.lag_records) for f in leader.followers] == [(2, 7), (3, -1)]


def test_a_controller_has_no_figures() -> None:
    controller = inspect_pb2.DescribeServiceResponse(
        role="controller", controller=inspect_pb2.ControllerState()
    )
    assert figures_of(controller).broker is None
