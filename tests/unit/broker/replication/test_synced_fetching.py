"""Following a leader with durability `synced`: a fetch reports the synced end."""

from unit.broker.broker_parts import until_idle
from unit.broker.fake_log import state
from unit.broker.scripted_leader import ME, Follower, following, log_of


async def test_the_next_fetch_waits_for_the_sync_of_the_last_batches() -> None:
    follower = Follower(synced=True)
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        follower.syncing.append(partition)
        first.answer(first.data(0, 1))
        await until_idle()
        assert len(follower.received) == 1
        follower.syncing.remove(partition)
        log_of(partition).synced_to = 2
        follower.fetcher.resend_position(partition)
        second = await follower.next(1)
    assert second.entry().position.flushed_offset == 2


async def test_the_next_fetch_waits_for_every_sync() -> None:
    follower = Follower(synced=True)
    partitions = [follower.follow(0), follower.follow(1)]
    follower.syncing = list(partitions)
    async with following(follower):
        for partition in partitions:
            await until_idle()
            assert follower.received == []
            follower.syncing.remove(partition)
            follower.fetcher.resend_position(partition)
        first = await follower.next(0)
    assert first.numbers == [0, 1]


async def test_a_forgotten_partition_is_not_waited_for() -> None:
    follower = Follower(synced=True)
    gone = follower.follow(0)
    follower.follow(1)
    follower.syncing.append(gone)
    async with following(follower):
        await until_idle()
        assert follower.received == []
        follower.fetcher.forget(gone)
        first = await follower.next(0)
    assert first.numbers == [1]


async def test_a_partition_that_leads_by_now_is_not_waited_for() -> None:
    """Its appends may keep it syncing without end."""
    follower = Follower(synced=True)
    leads = follower.follow(0)
    follower.follow(1)
    leads.take(state(leader=ME, epoch=6), 11, broker_epoch=follower.broker_epoch, now_ms=1)
    follower.syncing.append(leads)
    async with following(follower):
        first = await follower.next(0)
    assert first.numbers == [1]
