"""Records on their way to a partition, with their waiters. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from tidelog.client.delivery import Delivery, DeliveryFuture
from tidelog.record_batch import Columns, EncodedRecords, decode, encode_records
from tidelog.rpc.trace_context import Metadata

_Item = TypeVar("_Item")


class OutgoingBatch(NamedTuple):
    """Records of one batch.

    - `waiters`, `timestamps_ms`: one entry per record; empty if the batch has a single waiter.
    - `movable`: positions, ascending, of records that may go to any partition, because they have
      no key and no partition was requested.
    - `size_bytes`: their size in the producer's buffer.
    """

    encoded: EncodedRecords
    size_bytes: int
    deadline_ms: int
    waiters: Sequence[DeliveryFuture[Delivery]] = ()
    timestamps_ms: Sequence[int] = ()
    movable: Sequence[int] = ()
    trace_context: Metadata | None = None

    def split(self) -> tuple[OutgoingBatch, OutgoingBatch | None]:
        """Returns the records that may go to another partition, and the others, if there are any.
        The former keep the entire size of the batch in the buffer."""
        count = self.encoded.record_count
        if len(self.movable) == count:
            return self, None
        columns = decode(self.encoded.to_batch())
        others = sorted(set(range(count)).difference(self.movable))
        moved = self._of(columns, self.movable)._replace(movable=range(len(self.movable)))
        return moved, self._of(columns, others)._replace(movable=(), size_bytes=0)

    def _of(self, columns: Columns, places: Sequence[int]) -> OutgoingBatch:
        encoded = encode_records(
            _picked(columns.values, places),
            _picked(columns.keys, places),
            timestamps_ms=_picked(columns.timestamps_ms, places),
            headers={
                place: columns.headers[former]
                for place, former in enumerate(places)
                if former in columns.headers
            },
            codec=self.encoded.codec,
        )
        return self._replace(
            encoded=encoded,
            waiters=_picked(self.waiters, places) if self.waiters else (),
            timestamps_ms=_picked(self.timestamps_ms, places) if self.timestamps_ms else (),
        )


def _picked(items: Sequence[_Item], places: Sequence[int]) -> list[_Item]:
    return [items[place] for place in places]
