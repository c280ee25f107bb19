"""Why a replica takes no records, as derived from the parts of its broker."""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any, cast

from tidelog.inspection.state_reports import REJECTS_LEADER
from tidelog_broker.inspection.replica_knowledge import ReplicaKnowledge
from tidelog_broker.inspection.replica_state import Failure
from unit.broker.broker_parts import KEY
from unit.broker.log.builders import FakeClock

FOR_MS = 700


def knowledge(clock: FakeClock, *, rejection: tuple[str, int] | None) -> ReplicaKnowledge:
    """The knowledge of a broker whose disk takes everything."""
    # Nothing else is read.
    parts = dict.fromkeys(signature(ReplicaKnowledge).parameters, SimpleNamespace())
    parts |= {
        "manager": SimpleNamespace(
            find=lambda _: object(), disk=SimpleNamespace(of=lambda _: None)
        ),
        "repair": SimpleNamespace(damage_of=lambda _: None),
        "fetchers": SimpleNamespace(rejection_of=lambda _: rejection),
        "replica_fetch": SimpleNamespace(sessions=None),
        "consumer_fetch": SimpleNamespace(waiting=None, outrun=None),
    }
    return ReplicaKnowledge(**cast(Any, {**parts, "clock": clock}))


def test_a_follower_that_rejects_what_its_leader_sends_takes_no_records() -> None:
    clock = FakeClock()
    found = knowledge(clock, rejection=("does not match its checksum", FOR_MS)).failure_of(KEY)

    since_ms = clock.monotonic_ms() - FOR_MS
    assert found == Failure(REJECTS_LEADER, "does not match its checksum", since_ms)


def test_a_follower_that_takes_everything_has_no_failure() -> None:
    assert knowledge(FakeClock(), rejection=None).failure_of(KEY) is None
