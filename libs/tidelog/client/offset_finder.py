"""Asks leaders for offsets: the earliest, the latest, or the first at or after a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import MAX_POLL_MS, MIN_POLL_MS, ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.fetch_codec import offsets_from_wire, offsets_to_wire
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.status import UnreachableError

REQUEST_TIMEOUT_MS = 5_000


class OffsetFinder:
    def __init__(
        self,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        backoff: Backoff,
        timeout_ms: int,
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._timeout_ms = timeout_ms

    async def find(
        self,
        partitions: Iterable[TopicPartition],
        position: OffsetPosition,
        timestamp_ms: int = 0,
    ) -> dict[TopicPartition, int]:
        """One offset for each; -1 where no record is that young. Follows leaders until
        they answer; raises `TidelogError` after the time it was given."""
        give_up_ms = self._clock.monotonic_ms() + self._timeout_ms
        missing = {partition: Route() for partition in partitions}
        for partition in missing:
            await self._metadata.check_partition(partition)
        found: dict[TopicPartition, int] = {}
        error: TidelogError | None = None
        while missing:
            error = await self._ask_all(missing, found, position, timestamp_ms) or error
            if not missing:
                break
            now_ms = self._clock.monotonic_ms()
            if now_ms >= give_up_ms:
                names = ", ".join(map(str, missing))
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader told the offsets of {names} within {self._timeout_ms} ms"
                    + (f"; the last error: {error.message}" if error else ""),
                )
            leader_of = self._metadata.leader
            if any(route.wants_metadata(leader_of(p)) for p, route in missing.items()):
                self._metadata.poke()
                pause_ms = MIN_POLL_MS
            else:
                retries = [route.retry_at_ms - now_ms for route in missing.values()]
                pause_ms = min(max(min(retries), MIN_POLL_MS), MAX_POLL_MS)
            await asyncio.sleep(pause_ms / 1000)
        return found

    async def _ask_all(
        self,
        missing: dict[TopicPartition, Route],
        found: dict[TopicPartition, int],
        position: OffsetPosition,
        timestamp_ms: int,
    ) -> TidelogError | None:
        """Asks every leader that may be asked now; raises what no retry can mend."""
        now_ms = self._clock.monotonic_ms()
        by_leader: dict[str, list[tuple[TopicPartition, Leader]]] = {}
        for partition, route in missing.items():
            leader = self._metadata.leader(partition)
            if leader is not None and route.open_to(leader, now_ms):
                by_leader.setdefault(leader.address, []).append((partition, leader))
        answers = await asyncio.gather(
            *(
                self._ask(address, asked, position, timestamp_ms)
                for address, asked in by_leader.items()
            )
        )
        last: TidelogError | None = None
        now_ms = self._clock.monotonic_ms()
        for partition, leader, outcome in (item for answer in answers for item in answer):
            if isinstance(outcome, int):
                found[partition] = outcome
                del missing[partition]
                continue
            if not outcome.retriable:
                raise outcome
            last = outcome
            if outcome.leader is not None:
                self._metadata.apply_hint(partition, outcome.leader)
            missing[partition].failed(leader.leader_epoch, now_ms, self._backoff, stale=True)
        return last

    async def _ask(
        self,
        address: str,
        asked: list[tuple[TopicPartition, Leader]],
        position: OffsetPosition,
        timestamp_ms: int,
    ) -> list[tuple[TopicPartition, Leader, int | TidelogError]]:
        try:
            answer = await self._connections.broker(address).list_offsets(
                offsets_to_wire(asked, position, timestamp_ms), REQUEST_TIMEOUT_MS
            )
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            return [(partition, leader, unknown) for partition, leader in asked]
        return offsets_from_wire(asked, answer)
