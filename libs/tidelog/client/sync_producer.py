"""`Producer` without async."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tidelog.client.background import BackgroundClient, blocking, settings_of
from tidelog.client.delivery import BatchReport
from tidelog.client.producer import Producer
from tidelog.client.sync_delivery import SyncDelivery
from tidelog.record_batch import Headers


class SyncProducer(BackgroundClient[Producer]):
    """`Producer` without async, for any number of threads. Its settings are those of `Producer`.

    Callbacks (`on_delivery`, `on_unclean_election`) and serializers run in the client's own thread,
    and may not call the client."""

    @settings_of(Producer)
    def __init__(self, make: Callable[[], Producer]) -> None:
        super().__init__(make)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The caller of an interrupted block does not wait for a delivery timeout.
        self.close(flush=kind is None or issubclass(kind, Exception))

    def close(self, *, flush: bool = True) -> None:
        """Delivers the records that were sent, until their delivery timeout at most. Without
        `flush` these fail with CLIENT_CLOSED."""
        self._close(lambda producer: producer.close(flush=flush))

    def _close_at_exit(self) -> None:
        # Records that are not delivered fail, and are reported.
        self.close(flush=False)

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> SyncDelivery:
        """Waits only for room in the buffer, and raises at once if the record cannot be sent, as
        `Producer.send`. The result is a future: `send(...).result()` waits until the record is
        delivered. Records that are sent without waiting share batches; `flush` waits for all."""
        delivery = self._run(
            self._client.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )
        return SyncDelivery(self, delivery)

    send_and_wait = blocking(Producer.send_and_wait)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Headers] | Headers = (),
        timestamps_ms: Sequence[int] | int | None = None,
    ) -> list[BatchReport]:
        """Sends columns of records as `Producer.send_many`, and waits until all are delivered."""

        async def work() -> list[BatchReport]:
            return await (
                await self._client.send_many(
                    topic,
                    values,
                    keys,
                    partition=partition,
                    headers=headers,
                    timestamps_ms=timestamps_ms,
                )
            )

        return self._run(work())

    flush = blocking(Producer.flush)
    partitions_of = blocking(Producer.partitions_of)

    def begin_at(self, topic: str, partition: int, next_sequence: int) -> None:
        """Sets a partition's first sequence, with a given identity, before the first record."""
        self._call(lambda producer: producer.begin_at(topic, partition, next_sequence))

    def free_bytes(self) -> int:
        """Returns the free bytes in the buffer."""
        return self._call(lambda producer: producer.free_bytes)
