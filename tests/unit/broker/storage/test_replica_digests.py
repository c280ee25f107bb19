"""A range is read with the contents of its batches as far as one request may carry them."""

from __future__ import annotations

import pytest

from tidelog.model import Batch
from tidelog.request_bounds import MAX_RANGE_CONTENT_BYTES
from tidelog_broker.log.disk import Disk
from tidelog_broker.storage import replica_digests
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.replica_digests import ReadBatches, ReplicaDigests
from unit.broker.broker_parts import KEY, Replicas, at_work, in_place, until_idle
from unit.broker.log.builders import batch_at, batches_from


async def read(batches: list[Batch], config: dict[str, str] | None = None) -> ReadBatches | None:
    replicas = Replicas()
    await replicas.take(config=config)
    log = replicas.logs.log_of(KEY)
    assert log is not None
    for batch in batches:
        log.append([batch])
    disk: Disk = replicas.disk
    digests = ReplicaDigests(disk, replicas.logs, ColdReads(disk, in_place), in_place)
    found: list[ReadBatches | None] = []
    async with at_work(digests.run()):
        digests.read(KEY, 0, len(batches), "test", found.append, with_contents=True)
        await until_idle()
    (only,) = found
    return only


async def test_a_batch_of_the_largest_size_is_read_with_its_contents() -> None:
    batch = batch_at(0, size=MAX_RANGE_CONTENT_BYTES)
    found = await read([batch])
    assert found is not None
    assert found.contents == [batch]


async def test_contents_of_all_segments_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [batch_at(offset, size=600_000) for offset in range(4)]
    config = {"segment_bytes": str(1 << 20)}
    found = await read(batches, config)
    assert found is not None
    assert (found.contents, len(found.segments)) == (batches, 4)
    monkeypatch.setattr(replica_digests, "MAX_RANGE_CONTENT_BYTES", 4 * 600_000 - 1)
    assert await read(batches, config) is None


async def test_contents_of_small_batches_are_read() -> None:
    found = await read(batches_from(0, 10))
    assert found is not None
    assert found.contents == batches_from(0, 10)
