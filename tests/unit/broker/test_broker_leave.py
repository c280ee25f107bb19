"""The steps of a broker before its server stops."""

import asyncio
from pathlib import Path

from tidelog.errors import ErrorCode
from tidelog_runtime.metadata.broker_directories import RejectionCause, decode_rejected_start
from unit.broker.broker_parts import KEYS, until_idle
from unit.broker.broker_processes import Cluster, leading_alone, pair


async def test_a_leaving_broker_does_not_register_again(tmp_path: Path) -> None:
    """The server still listens at that time, so that no peer takes its end for a crash."""
    cluster = Cluster(tmp_path)
    process = await leading_alone(cluster)
    await process.broker.leave()
    assert cluster.data.get(KEYS.broker(1)) is None
    await asyncio.sleep(30)
    assert cluster.data.get(KEYS.broker(1)) is None
    await process.stop()


async def test_a_leaving_broker_leads_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    process = await leading_alone(cluster)
    await process.broker.leave()
    outcome = await process.produce()
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.LEADER_NOT_AVAILABLE
    await process.stop()


async def test_requests_that_wait_for_a_leaving_leader_are_answered_at_once(tmp_path: Path) -> None:
    leader, follower = await pair(Cluster(tmp_path))
    await follower.stop()
    waiting = asyncio.create_task(leader.produce())
    await until_idle()
    assert not waiting.done()
    await leader.broker.leave()
    outcome = await waiting
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.LEADER_CHANGED
    await leader.stop()


async def test_a_broker_that_ends_with_a_fault_leaves_the_reason_in_the_store(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    process = await leading_alone(cluster)
    process.broker.faults.reason = "task log-syncer failed: MemoryError"
    await process.broker.report_fault()
    found = cluster.data.get(KEYS.rejected_start(1))
    assert found is not None
    left = decode_rejected_start(found.value)
    assert (left.cause, left.reason) == (
        RejectionCause.FAULT,
        "task log-syncer failed: MemoryError",
    )
    await process.stop()
