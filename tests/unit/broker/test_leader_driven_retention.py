"""Only the leader moves the log start: followers delete what it has deleted, and nothing else."""

from __future__ import annotations

import asyncio

from tidelog_broker.core.partition.exchange import FetchAnswer
from unit.broker.broker_parts import append, at_work, commit
from unit.broker.fake_log import state
from unit.broker.requests.test_replica_fetch import Leader, ask_for, request
from unit.broker.test_maintenance import Broker

OLD = {"retention_ms": "1000", "segment_ms": "1000"}


async def test_a_follower_deletes_nothing_by_its_own_clock() -> None:
    broker = Broker()
    (partition,) = await broker.replicas.take(config=OLD)
    append(partition)
    commit(partition)
    following = state(leader=2, epoch=partition.leader_epoch + 1)
    partition.take(following, 99, broker_epoch=broker.replicas.manager.broker_epoch, now_ms=0)
    assert partition.leading is None
    async with at_work(broker.maintenance.delete_old(1000)):
        await asyncio.sleep(60)
        assert partition.log.log_start_offset == 0
        answer = FetchAnswer(partition.high_watermark, 2, partition.leader_epoch, ())
        assert partition.follow(partition.fetch_position(), answer)
        await asyncio.sleep(1)
        assert partition.log.log_start_offset == 2


async def test_followers_are_sent_a_log_start_that_has_moved() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    append(partition)
    end = partition.log.log_end_offset
    first = await leader.replica_fetch.handle(request(ask_for(partition, end)))
    assert first.session_id
    partition.log.reset_to(end)
    partition.log_start_moved()
    again = request()._replace(session_id=first.session_id, session_sequence=1)
    (result,) = (await leader.replica_fetch.handle(again)).results
    assert result.log_start_offset == end
