"""Checks that the throttle of moves bounds added replicas, and never a member of the ISR.

See rule `reassignment-done-when-in-sync`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from simulation.observation import patched
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.replication.move_throttle import MoveThrottle

MEMBER_UNBOUND = "ISR member unbound beside a throttled move"

_Found: TypeAlias = "Callable[[str, str], None]"
_Sendable: TypeAlias = Callable[[MoveThrottle, Partition, int], int | None]
_Receivable: TypeAlias = Callable[[MoveThrottle, Partition], int | None]


@contextmanager
def watching_throttle(found: _Found, seen: Counter[str]) -> Iterator[None]:
    """Checks throttles while the context lasts.

    - `found`: receives the name of a violation and a message
    - `seen`: counts members that are not bound while their partition is moved
    """

    def judge(partition: Partition, isr: set[int], broker_id: int, limit: int | None) -> None:
        state = partition.state
        if state is None or state.moving is None or broker_id not in isr:
            return
        if limit is not None:
            found(
                "isr_member_throttled",
                f"broker {broker_id} is in the ISR of {partition.name} and is bound to {limit} "
                "bytes",
            )
        elif broker_id in state.adding:
            seen[MEMBER_UNBOUND] += 1

    def sending(sendable: _Sendable) -> _Sendable:
        def judged(throttle: MoveThrottle, partition: Partition, follower: int) -> int | None:
            limit = sendable(throttle, partition, follower)
            isr = set(partition.state.isr_ids) if partition.state is not None else set()
            judge(partition, isr, follower, limit)
            return limit

        return judged

    def receiving(receivable: _Receivable) -> _Receivable:
        def judged(throttle: MoveThrottle, partition: Partition) -> int | None:
            limit = receivable(throttle, partition)
            # The controller sends a follower no ISR: it has the one of its own watch.
            newest = throttle._states.state_of(partition.name)
            if newest is not None and newest.state.topic_id == partition.topic_id:
                judge(partition, set(newest.state.isr_ids), throttle._broker_id, limit)
            return limit

        return judged

    with (
        patched(MoveThrottle, "sendable_bytes", sending),
        patched(MoveThrottle, "receivable_bytes", receiving),
    ):
        yield
