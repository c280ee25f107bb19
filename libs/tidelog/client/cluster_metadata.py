"""Keeps what a client knows of the cluster fresh (the shell around `MetadataCache`)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from tidelog.client.arguments import integer, shown, topic_name
from tidelog.client.clock import Clock
from tidelog.client.connections import Connections
from tidelog.client.delivery import mark_seen
from tidelog.client.hedging import first_answer
from tidelog.client.metadata_cache import KnownTopic, MetadataCache
from tidelog.client.request_fields import built
from tidelog.client.request_parts import in_parts, name_bytes
from tidelog.client.retry import Leader
from tidelog.errors import (
    BootstrapUnresolvedError,
    ErrorCode,
    TidelogError,
    unknown_partition,
    unknown_topic,
)
from tidelog.model import LeaderHint, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import broker_pb2

# How many brokers one refresh may ask before it gives up.
MAX_CANDIDATES = 16
# A broker that has not answered within this is joined by the next; the first answer wins.
HEDGE_MS = 200
# The least that it is given, however little time the caller has.
MIN_HEDGE_MS = 10
REQUEST_TIMEOUT_MS = 2_000
# While leaders are looked for, metadata is asked for this often.
MIN_POLL_MS = 20
MAX_POLL_MS = 100
# And less often where the answer is long: that about ten thousand partitions, every 200 ms.
PARTITIONS_PER_POLL_MS = 50
# Without any broker that answers, a first question is given up after this long.
UNREACHABLE_TIMEOUT_MS = 10_000
# The same where no bootstrap name can be resolved: resolvers try a name again after a second.
UNRESOLVED_TIMEOUT_MS = 2_000
# A topic that was created a moment ago may not be known to every broker yet.
UNKNOWN_TOPIC_ATTEMPTS = 4
UNKNOWN_TOPIC_PAUSE_MS = 50
# How old knowledge of a topic in use may become before a broker is asked whether the topic still
# exists and how many partitions it has. The answer leaves the partitions out, so that it costs
# about as much as an empty fetch.
DEFAULT_METADATA_MAX_AGE_MS = 5_000
MIN_METADATA_MAX_AGE_MS = 100
# One such request names at most so many topics; clients of more check them in turn.
MAX_CHECKED_TOPICS = 500
TOPICS_FIELD = "tidelog.v1.MetadataRequest.topics"


_PORT = re.compile("[0-9]{1,5}")
_HOST = re.compile(rb"[a-zA-Z0-9._-]{1,253}")


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[str]:
    """Addresses from "host:port,host:port" or a sequence; raises `TidelogError`."""
    given = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [address.strip() for address in given if address.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (_is_host(host) and _PORT.fullmatch(port) and 0 < int(port) < 65536):
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"bootstrap address {shown(address)} is not host:port, as in 127.0.0.1:7500",
            )
    if not addresses:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "no bootstrap address; give at least one broker as host:port",
        )
    return addresses


def _is_host(host: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets."""
    try:
        if host.startswith("[") and host.endswith("]"):
            return bool(ipaddress.IPv6Address(host[1:-1]))
        return _HOST.fullmatch(host.encode("idna")) is not None
    except ValueError:  # a UnicodeError too
        return False


class ClusterMetadata:
    """Asks brokers, one refresh at a time, for the topics that are in use: those that were looked
    up and exist, and those that are followed.

    - `on_change` is called after every refresh that brought an answer, and after every check that
      found a topic changed.
    - `max_age_ms`: every topic in use is checked this often, MAX_CHECKED_TOPICS at a time."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        connections: Connections,
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
        *,
        max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
    ) -> None:
        integer("metadata_max_age_ms", max_age_ms, MIN_METADATA_MAX_AGE_MS)
        self._max_age_ms = max_age_ms
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections = connections
        self._clock = clock
        self._on_change = on_change
        self._cache = MetadataCache()
        # Topics in use; those that were checked last are at the end.
        self._interest: dict[str, None] = {}
        # Of these, those that stay in use while they do not exist.
        self._followed: frozenset[str] = frozenset()
        self._aging: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._poll_pause_ms = MIN_POLL_MS
        self._long_answer_ms = 0
        self._last_poll_ms = 0
        self._turn = 0

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(self._bootstrap)

    @property
    def controller_address(self) -> str:
        """Empty where no active controller is known."""
        return self._cache.controller_address

    def leader(self, partition: TopicPartition) -> Leader | None:
        return self._cache.leader(partition)

    def apply_hint(self, partition: TopicPartition, topic_id: str, hint: LeaderHint) -> bool:
        return self._cache.apply_hint(partition, topic_id, hint)

    def led(self, partition: TopicPartition, topic_id: str, leader_epoch: int) -> None:
        """A leader of this epoch has answered. How it was elected is told by metadata alone,
        which is asked for until it does: the broker that answers may be behind."""
        known = self._cache.leader(partition)
        if known is None or known.topic_id != topic_id:
            return
        if known.is_hint or known.leader_epoch < leader_epoch:
            self.poke()

    def gone(self, partition: TopicPartition) -> TidelogError | None:
        """The final error of a partition that was removed, or whose topic was deleted."""
        return self._cache.gone(partition)

    def want(self, topic: str) -> None:
        """The next refresh asks for this topic too."""
        self._use(topic)

    def follow(self, topics: Iterable[str]) -> None:
        """Keeps these topics fresh from now on, in place of those that were followed before."""
        self._followed = frozenset(topics)
        for topic in self._followed:
            self._use(topic)

    def cached_topic(self, name: str) -> KnownTopic | None:
        return self._cache.topic(name)

    async def topic(self, name: str, patience_ms: int | None = None) -> KnownTopic:
        """From the cache, else from the brokers. Raises `TidelogError`:
        UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist, REQUEST_TIMED_OUT when
        no broker answers, as `refresh_patiently`."""
        known = self._cache.topic(name)
        attempt = 0
        if known is None:
            topic_name("topic", name)
        while known is None:
            attempt += 1
            await self.refresh_patiently((name,), patience_ms)
            known = self._cache.topic(name)
            if known is None and attempt == UNKNOWN_TOPIC_ATTEMPTS:
                error = self._cache.error(name) or unknown_topic(name)
                self._forget(name)
                raise error
            if known is None:
                await asyncio.sleep(UNKNOWN_TOPIC_PAUSE_MS * attempt / 1000)
        return known

    async def refresh_patiently(
        self, names: Sequence[str] = (), patience_ms: int | None = None
    ) -> None:
        """`refresh` until a broker answers; raises `TidelogError` (REQUEST_TIMED_OUT) after
        UNREACHABLE_TIMEOUT_MS without one, or `patience_ms` where that is less. A silent broker
        costs a part of it. Raises `BootstrapUnresolvedError` after UNRESOLVED_TIMEOUT_MS."""
        bound_ms = UNREACHABLE_TIMEOUT_MS
        if patience_ms is not None:
            bound_ms = max(min(patience_ms, bound_ms), 0)
        hedge_ms = self._hedge_ms(bound_ms)
        problem = "there was no answer yet"
        unresolved_since_ms: int | None = None
        try:
            async with asyncio.timeout(bound_ms / 1000):
                while True:
                    try:
                        await self.refresh(names, hedge_ms)
                        return
                    except UnreachableError as error:
                        problem = str(error)
                        unresolved_since_ms = self._unresolved(error, unresolved_since_ms)
                    await asyncio.sleep(MAX_POLL_MS / 1000)
        except TimeoutError:
            raise TidelogError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no broker answered within {bound_ms} ms ({problem}); check that the cluster runs "
                "and that the addresses are right",
                outcome_unknown=False,
            ) from None

    def _unresolved(self, error: UnreachableError, since_ms: int | None) -> int | None:
        """Since when no bootstrap name can be resolved; None: one can, or brokers are known by
        other addresses. Raises `BootstrapUnresolvedError` where that is too long."""
        if not error.unresolved or self._cache.addresses():
            return None
        now_ms = self._clock.monotonic_ms()
        since_ms = now_ms if since_ms is None else since_ms
        if now_ms - since_ms >= UNRESOLVED_TIMEOUT_MS:
            raise BootstrapUnresolvedError(
                f"no host name of the bootstrap addresses ({', '.join(self._bootstrap)}) could be "
                f"resolved within {UNRESOLVED_TIMEOUT_MS} ms ({error}); correct the addresses, or "
                "check the name server"
            )
        return since_ms

    async def check_partition(
        self, partition: TopicPartition, patience_ms: int | None = None
    ) -> None:
        """Raises `TidelogError` for a partition that does not exist, and as `refresh_patiently`."""
        count = (await self.topic(partition.topic, patience_ms)).partitions
        if partition.partition >= count:
            # What is known may be older than the partition, or than its topic's creation.
            await self.refresh_patiently((partition.topic,), patience_ms)
            count = (await self.topic(partition.topic, patience_ms)).partitions
        if not 0 <= partition.partition < count:
            raise unknown_partition(partition.topic, partition.partition, count)

    async def refresh(self, names: Sequence[str] = (), hedge_ms: int = HEDGE_MS) -> None:
        """Asks for fresh metadata, or waits for the refresh that is under way. With
        `names`, returns only after an answer to a question that named them. With less than
        HEDGE_MS it asks by itself: the refresh under way may wait longer for a silent broker.
        Raises `UnreachableError` when no broker answers."""
        # A name that cannot be asked for would spoil every later question.
        built(broker_pb2.MetadataRequest, topics=names)
        for name in names:
            self._use(name)
        if hedge_ms < HEDGE_MS:
            await self._ask_for_topics(hedge_ms)
            self._on_change()
            return
        if self._refreshing is not None and names:
            # It may have been asked before the names were of interest.
            await asyncio.wait([self._refreshing])
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            # Whoever waits for it may be gone when it fails.
            self._refreshing.add_done_callback(mark_seen)
        await asyncio.shield(self._refreshing)

    def poke(self) -> None:
        """Asks for fresh metadata soon, in the background: at once the first time, then
        every 20 to 100 ms, or less often where the answer is long, for as long as somebody goes
        on poking."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())

    async def describe(
        self, topics: Sequence[str] | None, patience_ms: int | None = None
    ) -> broker_pb2.MetadataResponse:
        """An answer fresh from a broker; None: brokers and controller alone, empty: all
        topics. Raises `UnreachableError`. `patience_ms`: of this a silent broker costs a part."""
        hedge_ms = HEDGE_MS if patience_ms is None else self._hedge_ms(patience_ms)
        if topics is None:
            request = broker_pb2.MetadataRequest(cluster_only=True)
            return await self._described(request, hedge_ms)
        found: broker_pb2.MetadataResponse | None = None
        for names in in_parts(dict.fromkeys(topics), TOPICS_FIELD, name_bytes):
            request = built(broker_pb2.MetadataRequest, topics=names)
            answer = await self._described(request, hedge_ms)
            if found is None:
                found = answer
            else:
                found.topics.extend(answer.topics)
        assert found is not None, "no names are one part"
        return found

    async def _described(
        self, request: broker_pb2.MetadataRequest, hedge_ms: int
    ) -> broker_pb2.MetadataResponse:
        answer = await self._ask(request, hedge_ms)
        self._apply(answer)
        return answer

    async def close(self) -> None:
        tasks = [t for t in (self._polling, self._refreshing, self._aging) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self) -> None:
        now = self._clock.monotonic_ms()
        if now - self._last_poll_ms > 2 * max(MAX_POLL_MS, self._long_answer_ms):
            self._poll_pause_ms = MIN_POLL_MS
        else:
            await asyncio.sleep(max(self._poll_pause_ms, self._long_answer_ms) / 1000)
            self._poll_pause_ms = min(2 * self._poll_pause_ms, MAX_POLL_MS)
        # No broker answers: whoever still needs metadata pokes again.
        with contextlib.suppress(UnreachableError, TidelogError):
            await self.refresh()
        self._last_poll_ms = self._clock.monotonic_ms()
        self._polling = None
        self._on_change()

    async def _refresh(self) -> None:
        try:
            await self._ask_for_topics(HEDGE_MS)
        finally:
            self._refreshing = None
        self._on_change()

    async def _ask_for_topics(self, hedge_ms: int) -> None:
        told = 0
        for names in in_parts(sorted(self._interest), TOPICS_FIELD, name_bytes):
            request = broker_pb2.MetadataRequest(topics=names, cluster_only=not names)
            answer = await self._ask(request, hedge_ms)
            self._apply(answer)
            told += sum(len(topic.partitions) for topic in answer.topics)
        self._long_answer_ms = told // PARTITIONS_PER_POLL_MS

    def _use(self, topic: str) -> None:
        self._interest.setdefault(topic)
        if self._aging is None:
            self._aging = asyncio.create_task(self._keep_fresh())

    def _forget(self, topic: str) -> None:
        """Keeps nothing about a name that no topic has, unless it is followed."""
        if topic not in self._followed:
            self._interest.pop(topic, None)
            self._cache.forget_missing(self._interest)

    def _apply(self, answer: broker_pb2.MetadataResponse) -> list[str]:
        changed = self._cache.apply(answer)
        # A lookup may have given up while the answer was on its way.
        self._cache.forget_missing(self._interest)
        return changed

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._max_age_ms / 1000)
            # No broker answers: whoever needs metadata notices by itself.
            with contextlib.suppress(UnreachableError, TidelogError):
                await self._check_age()

    async def _check_age(self) -> None:
        names = list(islice(self._interest, MAX_CHECKED_TOPICS))
        if not names:
            return
        request = broker_pb2.MetadataRequest(topics=names, without_partitions=True)
        changed = self._apply(await self._ask(request))
        existing = [name for name in changed if self._cache.topic(name) is not None]
        if existing:
            # For the leaders of what is new.
            self._apply(await self._ask(broker_pb2.MetadataRequest(topics=existing)))
        if changed:
            self._on_change()
        for name in names:
            if self._cache.is_denied(name):
                self._forget(name)
            elif name in self._interest:
                # To the end: the next check begins with those that were left out.
                del self._interest[name]
                self._use(name)

    def candidates(self) -> list[str]:
        """Every address, beginning each time with another, so that a broker that is
        behind, or hangs, is not always the one that is believed."""
        addresses = self._addresses()
        self._turn += 1
        first = self._turn % len(addresses)
        return (addresses[first:] + addresses[:first])[:MAX_CANDIDATES]

    def _addresses(self) -> list[str]:
        return list(dict.fromkeys((*self._cache.addresses(), *self._bootstrap)))

    def _hedge_ms(self, patience_ms: int) -> int:
        """After how long the next broker is asked by a caller that waits for `patience_ms`, so
        that each is asked in that time, and has a part of it to answer."""
        parts = min(len(self._addresses()), MAX_CANDIDATES) + 1
        return max(min(HEDGE_MS, patience_ms // parts), MIN_HEDGE_MS)

    async def _ask(
        self, request: broker_pb2.MetadataRequest, hedge_ms: int = HEDGE_MS
    ) -> broker_pb2.MetadataResponse:
        answer, failures = await first_answer(
            self.candidates(),
            lambda address: self._ask_one(address, request),
            hedge_ms,
            (UnreachableError, TidelogError),
        )
        if answer is None:
            # What no broker takes is no better the next time.
            rejections = [f for f in failures if isinstance(f, TidelogError)]
            if rejections and all(
                isinstance(f, TidelogError) and f.code is ErrorCode.INVALID_REQUEST
                for f in failures
            ):
                raise rejections[0]
            raise UnreachableError(
                "any broker",
                "; ".join(map(str, failures)),
                unresolved=all(isinstance(f, UnreachableError) and f.unresolved for f in failures),
            )
        return answer

    async def _ask_one(
        self, address: str, request: broker_pb2.MetadataRequest
    ) -> broker_pb2.MetadataResponse:
        return await self._connections.broker(address).metadata(request, REQUEST_TIMEOUT_MS)
