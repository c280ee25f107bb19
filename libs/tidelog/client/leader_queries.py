"""Queries the leaders of partitions, and follows changes of leaders until all have answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import MAX_POLL_MS, MIN_POLL_MS, ClusterMetadata
from tidelog.client.connections import BrokerApi, Connections
from tidelog.client.request_parts import call_concurrently, in_parts, partition_bytes
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError

_Answer = TypeVar("_Answer")

# A partition does not exist if leaders and brokers have said so for this long.
DENIED_MS = 10_000
# Maximum number of partitions that an error names.
MAX_NAMED = 10

LedPartitions = Sequence[tuple[TopicPartition, Leader]]
LeaderAnswers = list[tuple[TopicPartition, Leader, _Answer | TidelogError]]
# Sends the query to one leader; raises `UnreachableError` and `TidelogError`.
LeaderQuery = Callable[[BrokerApi, LedPartitions], Awaitable[LeaderAnswers[_Answer]]]


class LeaderQueries:
    """Sends one query to the leaders of partitions.

    `field` of its methods: the full name of the repeated field that holds a request's partitions.
    A leader of more partitions than one request may name gets several requests."""

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

    async def query_all(
        self,
        partitions: Iterable[TopicPartition],
        query: LeaderQuery[_Answer],
        answer_kind: str,
        field: str,
    ) -> dict[TopicPartition, _Answer]:
        """Returns the answer for each partition. Raises the first `TidelogError` that `query_each`
        yields."""
        found: dict[TopicPartition, _Answer] = {}
        async with contextlib.aclosing(
            self.query_each(partitions, query, answer_kind, field)
        ) as outcomes:
            async for partition, outcome in outcomes:
                if isinstance(outcome, TidelogError):
                    raise outcome
                found[partition] = outcome
        return found

    async def query_each(
        self,
        partitions: Iterable[TopicPartition],
        query: LeaderQuery[_Answer],
        answer_kind: str,
        field: str,
    ) -> AsyncGenerator[tuple[TopicPartition, _Answer | TidelogError]]:
        """Yields the answer for each partition as it arrives, or its error:

        - an error that no retry can fix;
        - that the partition does not exist, once that was reported for DENIED_MS;
        - REQUEST_TIMED_OUT after the timeout, with `answer_kind` in its message."""
        give_up_ms = self._clock.monotonic_ms() + self._timeout_ms
        missing = {partition: Route() for partition in partitions}
        for partition, rejection in await self._rejected(missing):
            del missing[partition]
            yield partition, rejection
        last: TidelogError | None = None
        denied_since: dict[TopicPartition, int] = {}
        while missing:
            for partition, error in self._gone_partitions(missing):
                del missing[partition]
                yield partition, error
            for partition, outcome in await self._query_open(missing, query, field):
                if isinstance(outcome, TidelogError) and self._may_change(
                    partition, outcome, denied_since
                ):
                    last = outcome
                else:
                    del missing[partition]
                    yield partition, outcome
            if not missing:
                break
            now_ms = self._clock.monotonic_ms()
            if now_ms >= give_up_ms:
                error = self._timed_out(missing, answer_kind, last)
                for partition in missing:
                    yield partition, error
                break
            await asyncio.sleep(self._pause_ms(missing, now_ms) / 1000)

    def _may_change(
        self,
        partition: TopicPartition,
        rejection: TidelogError,
        denied_since: dict[TopicPartition, int],
    ) -> bool:
        if rejection.code not in FINAL_ANSWERS:
            denied_since.pop(partition, None)
            return rejection.retriable
        now_ms = self._clock.monotonic_ms()
        return now_ms - denied_since.setdefault(partition, now_ms) < DENIED_MS

    def _gone_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, TidelogError]]:
        """Returns partitions that were removed, or whose topic was deleted, since the check."""
        return [
            (p, error) for p in partitions if (error := self._metadata.removal_error(p)) is not None
        ]

    async def _rejected(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, TidelogError]]:
        """Returns partitions that do not exist; all partitions if no broker answers."""

        async def rejection(partition: TopicPartition) -> TidelogError | None:
            try:
                await self._metadata.check_partition(partition, self._timeout_ms)
            except TidelogError as error:
                return error
            return None

        checked = list(partitions)
        rejections = await asyncio.gather(*map(rejection, checked))
        return [
            (partition, error)
            for partition, error in zip(checked, rejections, strict=True)
            if error is not None
        ]

    def _timed_out(
        self, missing: Collection[TopicPartition], answer_kind: str, last: TidelogError | None
    ) -> TidelogError:
        names = ", ".join(map(str, islice(missing, MAX_NAMED)))
        if len(missing) > MAX_NAMED:
            names += f" and {len(missing) - MAX_NAMED} others"
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no leader returned the {answer_kind} of {names} within {self._timeout_ms} ms"
            + (f"; the last error: {last.message}" if last else ""),
            outcome_unknown=False,
        )

    def _pause_ms(self, missing: dict[TopicPartition, Route], now_ms: int) -> int:
        leader_of = self._metadata.leader
        if any(route.wants_metadata(leader_of(p)) for p, route in missing.items()):
            self._metadata.refresh_soon()
            return MIN_POLL_MS
        retries = [route.retry_at_ms - now_ms for route in missing.values()]
        return min(max(min(retries), MIN_POLL_MS), MAX_POLL_MS)

    async def _query_open(
        self, missing: dict[TopicPartition, Route], query: LeaderQuery[_Answer], field: str
    ) -> list[tuple[TopicPartition, _Answer | TidelogError]]:
        """Returns the answers of all leaders that may be queried now."""
        now_ms = self._clock.monotonic_ms()
        by_leader: dict[str, list[tuple[TopicPartition, Leader]]] = {}
        for partition, route in missing.items():
            leader = self._metadata.leader(partition)
            if leader is not None and route.open_to(leader, now_ms):
                by_leader.setdefault(leader.address, []).append((partition, leader))
        answers = await asyncio.gather(
            *(
                self._query_leader(address, requested, query, field)
                for address, requested in by_leader.items()
            )
        )
        outcomes: list[tuple[TopicPartition, _Answer | TidelogError]] = []
        now_ms = self._clock.monotonic_ms()
        for partition, leader, outcome in (item for answer in answers for item in answer):
            outcomes.append((partition, outcome))
            if not isinstance(outcome, TidelogError):
                continue
            if outcome.leader is not None:
                self._metadata.apply_hint(partition, leader.topic_id, outcome.leader)
            missing[partition].failed(leader, now_ms, self._backoff, stale=True)
        return outcomes

    async def _query_leader(
        self, address: str, requested: LedPartitions, query: LeaderQuery[_Answer], field: str
    ) -> LeaderAnswers[_Answer]:
        async def query_part(part: LedPartitions) -> LeaderAnswers[_Answer]:
            return await self._query_part(address, part, query)

        parts = in_parts(requested, field, lambda entry: partition_bytes(entry[0]))
        answers = await call_concurrently(query_part, parts)
        return [item for answer in answers for item in answer]

    async def _query_part(
        self, address: str, requested: LedPartitions, query: LeaderQuery[_Answer]
    ) -> LeaderAnswers[_Answer]:
        try:
            return await query(self._connections.broker(address), requested)
        except UnreachableError as error:
            rejection = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
        except TidelogError as error:
            rejection = error
        return [(partition, leader, rejection) for partition, leader in requested]
