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
from tidelog.client.request_parts import ask_at_once, in_parts, partition_bytes
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError

_Told = TypeVar("_Told")

# A partition does not exist if leaders and brokers have said so for this long.
DENIED_MS = 10_000
# Maximum number of partitions that an error names.
MAX_NAMED = 10

Asked = Sequence[tuple[TopicPartition, Leader]]
Answers = list[tuple[TopicPartition, Leader, _Told | TidelogError]]
# Sends the query to one leader; raises `UnreachableError` and `TidelogError`.
Ask = Callable[[BrokerApi, Asked], Awaitable[Answers[_Told]]]


class LeaderAsker:
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

    async def ask_all(
        self, partitions: Iterable[TopicPartition], ask: Ask[_Told], wanted: str, field: str
    ) -> dict[TopicPartition, _Told]:
        """Returns the answer for each partition. Raises the first `TidelogError` that `ask_each`
        yields."""
        found: dict[TopicPartition, _Told] = {}
        async with contextlib.aclosing(self.ask_each(partitions, ask, wanted, field)) as outcomes:
            async for partition, outcome in outcomes:
                if isinstance(outcome, TidelogError):
                    raise outcome
                found[partition] = outcome
        return found

    async def ask_each(
        self, partitions: Iterable[TopicPartition], ask: Ask[_Told], wanted: str, field: str
    ) -> AsyncGenerator[tuple[TopicPartition, _Told | TidelogError]]:
        """Yields the answer for each partition as it arrives, or its error:

        - an error that no retry can fix;
        - that the partition does not exist, once that was reported for DENIED_MS;
        - REQUEST_TIMED_OUT after the timeout, with `wanted`, the kind of answer, in its message."""
        give_up_ms = self._clock.monotonic_ms() + self._timeout_ms
        missing = {partition: Route() for partition in partitions}
        for partition, refusal in await self._refused(missing):
            del missing[partition]
            yield partition, refusal
        last: TidelogError | None = None
        denied_since: dict[TopicPartition, int] = {}
        while missing:
            for partition, error in self._gone(missing):
                del missing[partition]
                yield partition, error
            for partition, outcome in await self._ask_open(missing, ask, field):
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
                error = self._timed_out(missing, wanted, last)
                for partition in missing:
                    yield partition, error
                break
            await asyncio.sleep(self._pause_ms(missing, now_ms) / 1000)

    def _may_change(
        self,
        partition: TopicPartition,
        refusal: TidelogError,
        denied_since: dict[TopicPartition, int],
    ) -> bool:
        if refusal.code not in FINAL_ANSWERS:
            denied_since.pop(partition, None)
            return refusal.retriable
        now_ms = self._clock.monotonic_ms()
        return now_ms - denied_since.setdefault(partition, now_ms) < DENIED_MS

    def _gone(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, TidelogError]]:
        """Returns partitions that were removed, or whose topic was deleted, since the check."""
        return [(p, error) for p in partitions if (error := self._metadata.gone(p)) is not None]

    async def _refused(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, TidelogError]]:
        """Returns partitions that do not exist; all partitions if no broker answers."""

        async def refusal(partition: TopicPartition) -> TidelogError | None:
            try:
                await self._metadata.check_partition(partition, self._timeout_ms)
            except TidelogError as error:
                return error
            return None

        checked = list(partitions)
        refusals = await asyncio.gather(*map(refusal, checked))
        return [
            (partition, error)
            for partition, error in zip(checked, refusals, strict=True)
            if error is not None
        ]

    def _timed_out(
        self, missing: Collection[TopicPartition], wanted: str, last: TidelogError | None
    ) -> TidelogError:
        names = ", ".join(map(str, islice(missing, MAX_NAMED)))
        if len(missing) > MAX_NAMED:
            names += f" and {len(missing) - MAX_NAMED} others"
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no leader told the {wanted} of {names} within {self._timeout_ms} ms"
            + (f"; the last error: {last.message}" if last else ""),
            outcome_unknown=False,
        )

    def _pause_ms(self, missing: dict[TopicPartition, Route], now_ms: int) -> int:
        leader_of = self._metadata.leader
        if any(route.wants_metadata(leader_of(p)) for p, route in missing.items()):
            self._metadata.poke()
            return MIN_POLL_MS
        retries = [route.retry_at_ms - now_ms for route in missing.values()]
        return min(max(min(retries), MIN_POLL_MS), MAX_POLL_MS)

    async def _ask_open(
        self, missing: dict[TopicPartition, Route], ask: Ask[_Told], field: str
    ) -> list[tuple[TopicPartition, _Told | TidelogError]]:
        """Returns the answers of all leaders that may be queried now."""
        now_ms = self._clock.monotonic_ms()
        by_leader: dict[str, list[tuple[TopicPartition, Leader]]] = {}
        for partition, route in missing.items():
            leader = self._metadata.leader(partition)
            if leader is not None and route.open_to(leader, now_ms):
                by_leader.setdefault(leader.address, []).append((partition, leader))
        answers = await asyncio.gather(
            *(self._ask_one(address, asked, ask, field) for address, asked in by_leader.items())
        )
        outcomes: list[tuple[TopicPartition, _Told | TidelogError]] = []
        now_ms = self._clock.monotonic_ms()
        for partition, leader, outcome in (item for answer in answers for item in answer):
            outcomes.append((partition, outcome))
            if not isinstance(outcome, TidelogError):
                continue
            if outcome.leader is not None:
                self._metadata.apply_hint(partition, leader.topic_id, outcome.leader)
            missing[partition].failed(leader, now_ms, self._backoff, stale=True)
        return outcomes

    async def _ask_one(
        self, address: str, asked: Asked, ask: Ask[_Told], field: str
    ) -> Answers[_Told]:
        async def ask_part(part: Asked) -> Answers[_Told]:
            return await self._ask_part(address, part, ask)

        parts = in_parts(asked, field, lambda entry: partition_bytes(entry[0]))
        answers = await ask_at_once(ask_part, parts)
        return [item for answer in answers for item in answer]

    async def _ask_part(self, address: str, asked: Asked, ask: Ask[_Told]) -> Answers[_Told]:
        try:
            return await ask(self._connections.broker(address), asked)
        except UnreachableError as error:
            refusal = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
        except TidelogError as error:
            refusal = error
        return [(partition, leader, refusal) for partition, leader in asked]
