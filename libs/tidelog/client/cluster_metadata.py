"""Keeps a client's metadata of the cluster up to date: the I/O around `MetadataCache`."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import re
from collections.abc import Callable, Container, Iterable, Sequence
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
from tidelog.client.version_check import VersionCheck
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

# How many brokers one refresh may query.
MAX_CANDIDATES = 16
# If a broker does not answer within this time, the next one is queried as well. The first answer
# counts.
HEDGE_MS = 200
# Minimum of that time, however little time the caller has.
MIN_HEDGE_MS = 10
REQUEST_TIMEOUT_MS = 2_000
# Pause between queries for metadata while a leader is missing: it doubles from MIN to MAX.
MIN_POLL_MS = 20
MAX_POLL_MS = 100
# The pause is longer after a long answer: 200 ms after ten thousand partitions.
PARTITIONS_PER_POLL_MS = 50
# A first query gives up after this time if no broker answers,
UNREACHABLE_TIMEOUT_MS = 10_000
# or after this time if no bootstrap name can be resolved: resolvers retry a name after a second.
UNRESOLVED_TIMEOUT_MS = 2_000
# Some brokers may not know a topic yet that was just created.
UNKNOWN_TOPIC_ATTEMPTS = 4
UNKNOWN_TOPIC_PAUSE_MS = 50
# Maximum age of the metadata of a topic in use. Then a broker is queried whether the topic still
# exists and how many partitions it has. The answer omits the partitions, so it costs about as much
# as an empty fetch.
DEFAULT_METADATA_MAX_AGE_MS = 5_000
MIN_METADATA_MAX_AGE_MS = 100
# Maximum number of topics per check. A client of more topics spreads its checks evenly over the
# maximum age.
MAX_CHECKED_TOPICS = 500
# Least planned time from one check to the next one, unless the maximum age is shorter. So metadata
# of more than 10,000 topics may be older than DEFAULT_METADATA_MAX_AGE_MS.
MIN_CHECK_PAUSE_MS = 250
TOPICS_FIELD = "tidelog.v1.MetadataRequest.topics"


_PORT = re.compile("[0-9]{1,5}")
_HOST = re.compile(rb"[a-zA-Z0-9._-]{1,253}")


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[str]:
    """Returns the addresses from "host:port,host:port" or a sequence; raises `TidelogError`."""
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
    """Returns whether `host` is a name, an IPv4 address, or an IPv6 address in brackets."""
    try:
        if host.startswith("[") and host.endswith("]"):
            return bool(ipaddress.IPv6Address(host[1:-1]))
        return _HOST.fullmatch(host.encode("idna")) is not None
    except ValueError:  # a UnicodeError too
        return False


def check_pause_ms(topic_count: int, max_age_ms: int) -> int:
    """Returns the time from one check of MAX_CHECKED_TOPICS topics to the next one."""
    return max(max_age_ms // check_count(topic_count), min(MIN_CHECK_PAUSE_MS, max_age_ms))


def check_count(topic_count: int) -> int:
    """Returns how many checks cover this many topics."""
    return max(math.ceil(topic_count / MAX_CHECKED_TOPICS), 1)


class ClusterMetadata:
    """Queries brokers for the topics in use, one refresh at a time.

    A topic is in use if it was looked up and exists, or if it is followed.

    - `on_change`: called after every refresh with an answer, and after every check that found a
      changed topic.
    - `max_age_ms`: interval of the checks of a topic in use (`check_pause_ms`)."""

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
        self._version_check = VersionCheck()
        # Topics in use; the ones checked last are at the end.
        self._interest: dict[str, None] = {}
        # The topics among these that stay in use while they do not exist.
        self._followed: frozenset[str] = frozenset()
        self._aging: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._poll_pause_ms = MIN_POLL_MS
        self._long_answer_ms = 0
        self._last_poll_ms = 0
        self._turn = 0
        self._more_checks = asyncio.Event()

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(self._bootstrap)

    @property
    def controller_address(self) -> str:
        """Address of the active controller; empty: none is known."""
        return self._cache.controller_address

    def version_of(self, address: str) -> str:
        """Version of the service at an address; empty: it is not known."""
        return self._cache.versions.get(address, "")

    def leader(self, partition: TopicPartition) -> Leader | None:
        return self._cache.leader(partition)

    def apply_hint(self, partition: TopicPartition, topic_id: str, hint: LeaderHint) -> bool:
        return self._cache.apply_hint(partition, topic_id, hint)

    def led(self, partition: TopicPartition, topic_id: str, leader_epoch: int) -> None:
        """Records that a leader of this epoch has answered. Only metadata says how the leader was
        elected. It is polled until it does, because a broker that answers may be behind."""
        known = self._cache.leader(partition)
        if known is None or known.topic_id != topic_id:
            return
        if known.is_hint or known.leader_epoch < leader_epoch:
            self.refresh_soon()

    def removal_error(self, partition: TopicPartition) -> TidelogError | None:
        """Returns the final error of a partition that was removed, or whose topic was deleted."""
        return self._cache.removal_error(partition)

    def want(self, topic: str) -> None:
        """Includes this topic in the next refresh."""
        self._use(topic)

    def follow(self, topics: Iterable[str]) -> None:
        """Keeps these topics up to date from now on, in place of those followed before."""
        self._followed = frozenset(topics)
        for topic in self._followed:
            self._use(topic)

    def cached_topic(self, name: str) -> KnownTopic | None:
        return self._cache.topic(name)

    async def topic(self, name: str, patience_ms: int | None = None) -> KnownTopic:
        """Returns a topic from the cache, else from the brokers.

        Raises `TidelogError`: UNKNOWN_TOPIC_OR_PARTITION if the topic does not exist, and as
        `refresh_patiently` if no broker answers."""
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
        """Calls `refresh` until a broker answers.

        Raises `TidelogError` (REQUEST_TIMED_OUT) after UNREACHABLE_TIMEOUT_MS, or after
        `patience_ms` if that is less, and `BootstrapUnresolvedError` after UNRESOLVED_TIMEOUT_MS.
        A silent broker uses up only a part of the time."""
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
        """Returns since when no bootstrap name can be resolved; None: one can, or other addresses
        of brokers are known. Raises `BootstrapUnresolvedError` after UNRESOLVED_TIMEOUT_MS."""
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
        """Raises `TidelogError` if the partition does not exist, and as `refresh_patiently`."""
        count = (await self.topic(partition.topic, patience_ms)).partitions
        if partition.partition >= count:
            # The cached metadata may be older than the partition, or than its topic.
            await self.refresh_patiently((partition.topic,), patience_ms)
            count = (await self.topic(partition.topic, patience_ms)).partitions
        if not 0 <= partition.partition < count:
            raise unknown_partition(partition.topic, partition.partition, count)

    async def refresh(self, names: Sequence[str] = (), hedge_ms: int = HEDGE_MS) -> None:
        """Queries fresh metadata, or waits for the refresh in progress.

        With `names`, returns only after an answer to a query that included them. With a shorter
        `hedge_ms` it sends its own query, because the refresh in progress may wait longer for a
        silent broker. Raises `UnreachableError` if no broker answers."""
        # A name that cannot be sent would make every later query fail.
        built(broker_pb2.MetadataRequest, topics=names)
        for name in names:
            self._use(name)
        if hedge_ms < HEDGE_MS:
            await self._ask_for_topics(hedge_ms)
            self._on_change()
            return
        if self._refreshing is not None and names:
            # That refresh may have begun before these names were in use.
            await asyncio.wait([self._refreshing])
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            # All callers that wait for it may have been cancelled when it fails.
            self._refreshing.add_done_callback(mark_seen)
        await asyncio.shield(self._refreshing)

    def refresh_soon(self) -> None:
        """Queries fresh metadata soon, in the background: at once the first time; then every 20 to
        100 ms while callers repeat the call, or less often if the answers are long."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())

    async def describe(
        self, topics: Sequence[str] | None, patience_ms: int | None = None
    ) -> broker_pb2.MetadataResponse:
        """Returns a fresh answer from a broker.

        - `topics`: None: only brokers and controller; empty: all topics.
        - `patience_ms`: the caller's time, of which a silent broker uses up only a part.

        Raises `UnreachableError`."""
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
        # Other topics would take time for each of their partitions, and would not be kept fresh.
        self._apply(answer, self._interest)
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
        # No broker answers: callers that still need metadata poke again.
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
        partition_count = 0
        for names in in_parts(sorted(self._interest), TOPICS_FIELD, name_bytes):
            request = broker_pb2.MetadataRequest(topics=names, cluster_only=not names)
            answer = await self._ask(request, hedge_ms)
            self._apply(answer)
            partition_count += sum(len(topic.partitions) for topic in answer.topics)
        self._long_answer_ms = partition_count // PARTITIONS_PER_POLL_MS

    def _use(self, topic: str) -> None:
        count = len(self._interest)
        self._interest.setdefault(topic)
        if check_count(len(self._interest)) > check_count(count):
            self._more_checks.set()
        if self._aging is None:
            self._aging = asyncio.create_task(self._keep_fresh())

    def _forget(self, topic: str) -> None:
        """Removes a name that no topic has, unless it is followed."""
        if topic not in self._followed:
            self._interest.pop(topic, None)
            self._cache.forget_missing(self._interest)

    def _apply(
        self, answer: broker_pb2.MetadataResponse, topics: Container[str] | None = None
    ) -> list[str]:
        changed = self._cache.apply(answer, topics)
        self._version_check.compare(self._cache.versions)
        # The caller that looked a topic up may have given up meanwhile.
        self._cache.forget_missing(self._interest)
        return changed

    async def _keep_fresh(self) -> None:
        took_ms = 0
        while True:
            await self._pause(took_ms)
            begun_ms = self._clock.monotonic_ms()
            # No broker answers: requests that need metadata notice it themselves.
            with contextlib.suppress(UnreachableError, TidelogError):
                await self._check_age()
            took_ms = self._clock.monotonic_ms() - begun_ms

    async def _pause(self, took_ms: int) -> None:
        """Waits between two checks; the first one lasted `took_ms`. The pause becomes shorter
        when the topics need more checks. It is half of the planned one at least, so that slow
        brokers get no check after another."""
        begun_ms = self._clock.monotonic_ms()
        while True:
            self._more_checks.clear()
            pause_ms = check_pause_ms(len(self._interest), self._max_age_ms)
            waited_ms = self._clock.monotonic_ms() - begun_ms
            left_ms = max(pause_ms - took_ms, pause_ms // 2) - waited_ms
            if left_ms <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._more_checks.wait()

    async def _check_age(self) -> None:
        names = list(islice(self._interest, MAX_CHECKED_TOPICS))
        if not names:
            return
        request = broker_pb2.MetadataRequest(topics=names, without_partitions=True)
        changed = self._apply(await self._ask(request))
        existing = [name for name in changed if self._cache.topic(name) is not None]
        if existing:
            # Query the leaders of new partitions.
            self._apply(await self._ask(broker_pb2.MetadataRequest(topics=existing)))
        if changed:
            self._on_change()
        for name in names:
            if self._cache.is_denied(name):
                self._forget(name)
            elif name in self._interest:
                # Move the topic to the end, so the next check begins with the remaining ones.
                del self._interest[name]
                self._use(name)

    def candidates(self) -> list[str]:
        """Returns all addresses, starting with another one each time, so that the first answer
        does not always come from a broker that is behind or hangs."""
        addresses = self._addresses()
        self._turn += 1
        first = self._turn % len(addresses)
        return (addresses[first:] + addresses[:first])[:MAX_CANDIDATES]

    def _addresses(self) -> list[str]:
        return list(dict.fromkeys((*self._cache.addresses(), *self._bootstrap)))

    def _hedge_ms(self, patience_ms: int) -> int:
        """Returns the time after which to query the next broker, so that each is queried within
        `patience_ms` and has a part of that time to answer."""
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
            # A request that every broker rejects as invalid will not succeed later.
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
