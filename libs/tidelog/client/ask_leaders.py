"""Asks the leader of each of some partitions, and follows leaders until all have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import MAX_POLL_MS, MIN_POLL_MS, ClusterMetadata
from tidelog.client.connections import BrokerApi, Connections
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError

_Told = TypeVar("_Told")

Asked = Sequence[tuple[TopicPartition, Leader]]
Answers = list[tuple[TopicPartition, Leader, _Told | TidelogError]]
# Puts the question to one leader; raises `UnreachableError` and `TidelogError`.
Ask = Callable[[BrokerApi, Asked], Awaitable[Answers[_Told]]]


class LeaderAsker:
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

    async def ask_all(
        self, partitions: Iterable[TopicPartition], ask: Ask[_Told], wanted: str
    ) -> dict[TopicPartition, _Told]:
        """The answer for each partition. Raises `TidelogError`: what no retry can mend, or
        REQUEST_TIMED_OUT, which names what was `wanted`, after the time it was given."""
        give_up_ms = self._clock.monotonic_ms() + self._timeout_ms
        missing = {partition: Route() for partition in partitions}
        for partition in missing:
            await self._metadata.check_partition(partition)
        found: dict[TopicPartition, _Told] = {}
        error: TidelogError | None = None
        while missing:
            error = await self._ask_open(missing, found, ask) or error
            if not missing:
                break
            now_ms = self._clock.monotonic_ms()
            if now_ms >= give_up_ms:
                names = ", ".join(map(str, missing))
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader told the {wanted} of {names} within {self._timeout_ms} ms"
                    + (f"; the last error: {error.message}" if error else ""),
                )
            await asyncio.sleep(self._pause_ms(missing, now_ms) / 1000)
        return found

    def _pause_ms(self, missing: dict[TopicPartition, Route], now_ms: int) -> int:
        leader_of = self._metadata.leader
        if any(route.wants_metadata(leader_of(p)) for p, route in missing.items()):
            self._metadata.poke()
            return MIN_POLL_MS
        retries = [route.retry_at_ms - now_ms for route in missing.values()]
        return min(max(min(retries), MIN_POLL_MS), MAX_POLL_MS)

    async def _ask_open(
        self,
        missing: dict[TopicPartition, Route],
        found: dict[TopicPartition, _Told],
        ask: Ask[_Told],
    ) -> TidelogError | None:
        """Asks every leader that may be asked now; raises what no retry can mend."""
        now_ms = self._clock.monotonic_ms()
        by_leader: dict[str, list[tuple[TopicPartition, Leader]]] = {}
        for partition, route in missing.items():
            leader = self._metadata.leader(partition)
            if leader is not None and route.open_to(leader, now_ms):
                by_leader.setdefault(leader.address, []).append((partition, leader))
        answers = await asyncio.gather(
            *(self._ask_one(address, asked, ask) for address, asked in by_leader.items())
        )
        last: TidelogError | None = None
        now_ms = self._clock.monotonic_ms()
        for partition, leader, outcome in (item for answer in answers for item in answer):
            if not isinstance(outcome, TidelogError):
                found[partition] = outcome
                del missing[partition]
                continue
            if not outcome.retriable:
                raise outcome
            last = outcome
            if outcome.leader is not None:
                self._metadata.apply_hint(partition, leader.topic_id, outcome.leader)
            missing[partition].failed(leader, now_ms, self._backoff, stale=True)
        return last

    async def _ask_one(self, address: str, asked: Asked, ask: Ask[_Told]) -> Answers[_Told]:
        try:
            return await ask(self._connections.broker(address), asked)
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            return [(partition, leader, unknown) for partition, leader in asked]
