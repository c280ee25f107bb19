"""Reads a topic from its beginning to its end, into the ledger."""

from __future__ import annotations

from bench.grow.ledger import Ledger
from tidelog.client import Consumer

# Without a new record for this time, the missing records are lost.
PATIENCE_MS = 60_000


async def read_all(bootstrap: str, topic: str, ledger: Ledger) -> None:
    async with Consumer(bootstrap) as consumer:
        ends = await consumer.end_offsets(await consumer.partitions_of(topic))
        left = {partition for partition, end in ends.items() if end > 0}
        consumer.assign(sorted(left))
        while left:
            batches = await consumer.poll_batches(PATIENCE_MS)
            if not batches:
                return
            for batch in batches:
                ledger.note_read(
                    batch.partition.partition, batch.first_offset, batch.columns().values
                )
                if batch.next_offset >= ends[batch.partition]:
                    left.discard(batch.partition)
