"""Identity of a producer: queries brokers for an id when batches wait for one, and leaders for the
positions of a named producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tidelog.client.accumulator import Accumulator
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.producers_codec import (
    PARTITIONS_FIELD,
    Positions,
    describe_producers,
    init_producer_id,
)
from tidelog.client.request_parts import in_parts, partition_bytes
from tidelog.client.retry import Backoff, Leader
from tidelog.client.sequences import Identity, sequence_after
from tidelog.errors import STALE_METADATA, ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnknownMethodError, UnreachableError


class GivenIdentity:
    """Identity whose id and positions the caller finds. Where the producer cannot continue in a
    partition, it fails and does not start again."""

    def __init__(
        self, accumulator: Accumulator, metadata: ClusterMetadata, identity: Identity
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        accumulator.identified(identity)

    def step(self, now_ms: int) -> None:
        for partition, leader in self._accumulator.take_position_requests(
            now_ms, self._metadata.leader
        ):
            error = TidelogError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"the producer does not know its next sequence in {partition}; set "
                "it to the one that DescribeProducers returns (begin_at)",
            )
            self._accumulator.position_failed(partition, leader, error, now_ms, stale=False)

    async def stop(self) -> None:
        """Does nothing, because no task is running."""


class ProducerIdentity:
    """Identity that the producer queries itself, for as long as batches wait for it; these have
    their delivery timeout. `on_change`: called when something may be sent that could not be
    before."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        backoff: Backoff,
        *,
        name: str,
        on_change: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._name = name
        self._on_change = on_change
        self._identity: Identity | None = None
        self._identifying = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    def step(self, now_ms: int) -> None:
        """Starts queries for what is needed and not known."""
        if not self._identifying and self._accumulator.wants_identity():
            self._identifying = True
            self._spawn(self._identify())
        by_leader: dict[str, list[tuple[TopicPartition, Leader]]] = {}
        for partition, leader in self._accumulator.take_position_requests(
            now_ms, self._metadata.leader
        ):
            by_leader.setdefault(leader.address, []).append((partition, leader))
        for address, partitions in by_leader.items():
            self._spawn(self._find_positions(address, partitions))

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _identify(self) -> None:
        # One broker after another, never two at once: each call for a name fences the holder that
        # the previous call created.
        failures = 0
        while self._accumulator.wants_identity():
            addresses = self._metadata.candidates()
            unknown = 0
            for address in addresses:
                try:
                    identity = await init_producer_id(self._connections.broker(address), self._name)
                except UnreachableError as error:
                    failure = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
                except UnknownMethodError as error:
                    # One wrong address among the bootstrap addresses is skipped.
                    unknown += 1
                    if unknown < len(addresses):
                        continue
                    failure = error
                except TidelogError as error:
                    failure = error
                except Exception as error:  # reported to the batches that wait for the id
                    failure = TidelogError(ErrorCode.INTERNAL, f"the client failed: {error!r}")
                    failure.__cause__ = error
                else:
                    self._identity = identity
                    self._identifying = False
                    self._accumulator.identified(identity)
                    self._on_change()
                    return
                self._accumulator.identity_failed(_without_an_id(failure))
                if not failure.retriable:
                    break
            failures += 1
            self._on_change()
            await asyncio.sleep(self._backoff.pause_ms(failures) / 1000)
        self._identifying = False

    async def _find_positions(
        self, address: str, partitions: list[tuple[TopicPartition, Leader]]
    ) -> None:
        identity = self._identity
        assert identity is not None, "a position is asked for once there is an identity"
        # One request after another, because batches for this leader wait for all of them.
        for part in in_parts(partitions, PARTITIONS_FIELD, lambda entry: partition_bytes(entry[0])):
            positions = await self._describe(address, part, identity)
            self._found_positions(positions, identity)
            self._on_change()

    async def _describe(
        self, address: str, partitions: list[tuple[TopicPartition, Leader]], identity: Identity
    ) -> Positions:
        try:
            return await describe_producers(
                self._connections.broker(address), partitions, (identity.producer_id,), identity
            )
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            return [(partition, leader, unknown) for partition, leader in partitions]
        except TidelogError as error:
            return [(partition, leader, error) for partition, leader in partitions]
        except Exception as error:  # reported to the batches that wait for the position
            fault = TidelogError(ErrorCode.INTERNAL, f"the client failed: {error!r}")
            fault.__cause__ = error
            return [(partition, leader, fault) for partition, leader in partitions]

    def _found_positions(self, positions: Positions, identity: Identity) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition, leader, outcome in positions:
            if isinstance(outcome, TidelogError):
                stale = outcome.code in STALE_METADATA or outcome.outcome_unknown
                if outcome.leader is not None:
                    self._metadata.apply_hint(partition, leader.topic_id, outcome.leader)
                self._accumulator.position_failed(partition, leader, outcome, now_ms, stale=stale)
                continue
            last = next(
                (p.last_sequence for p in outcome if p.producer_id == identity.producer_id), -1
            )
            self._accumulator.positioned(partition, 0 if last < 0 else sequence_after(last, 1))


def _without_an_id(error: TidelogError) -> TidelogError:
    return TidelogError(
        error.code, f"no broker gave this producer an id (InitProducerId): {error.message}"
    )
