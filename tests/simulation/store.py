"""An etcd in memory: a server over `MemoryData`, and a `MetadataStore` for each process.

Its faults:

- it is away, and nothing answers
- it has no leader: reads and writes fail, watches end, and leases do not expire
- the network loses the answers of transactions
- watches are lost, and history is compacted

Leases expire by virtual time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from doubles.memory_data import MemoryData
from simulation.loop import SimHandle, SimLoop, SimProcess
from simulation.network import CallFailedError, Network, Serving
from tidelog_runtime.metadata.seen_revisions import SeenRevisions
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    LeaseLostError,
    Snapshot,
    StoreClosedError,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
    check_lease_ttl,
    check_transaction,
    has_put,
)
from tidelog_runtime.metadata.watch_view import WatchView

# A backup has the same id.
ETCD_CLUSTER_ID = 1
REQUEST_TIMEOUT_MS = 3_000
KEEP_ALIVES_PER_TTL = 3
RETRY_DELAY_S = 0.3
# A lost message of a watch is sent again, as by TCP.
RESEND_DELAY_S = 0.4


class StoreAnswer(NamedTuple):
    """An answer, and the revision of the store at that time."""

    value: object
    revision: int


class EtcdServer:
    """The server of every `SimStore`."""

    def __init__(
        self, loop: SimLoop, network: Network, data: MemoryData, host: str = "etcd"
    ) -> None:
        self.process = SimProcess(host, 1)
        self.address = f"{host}:2379"
        self.data = data
        self._misled: dict[SimProcess, EtcdServer] = {}
        self.has_leader = True
        # The process whose transaction is being carried out.
        self.caller: SimProcess | None = None
        # Effects of faults: requests that were rejected without a leader; processes that were led
        # to a backup, by host; watches that ended or did not begin, by the rejected name; and how
        # often a client read the store again after a compaction.
        self.refused_leaderless = self.read_anew = 0
        self.misled: Counter[str] = Counter()
        self.denied_watches: Counter[str] = Counter()
        self._loop = loop
        self._network = network
        self._leases: dict[int, tuple[int, SimHandle]] = {}
        self._streams: dict[_Stream, None] = {}
        self._refused: list[str] = []
        # Revisions beyond which watches bring nothing yet, by process.
        self._late: dict[SimProcess, int] = {}
        self._told_revision = data.revision
        data.listen(self._changed)
        network.listen(self.address, self)

    # -- faults ------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        return self._network.serves(self.address)

    def go_away(self) -> None:
        self._network.stop_listening(self.address)
        self._break_watches()
        self._hold_leases()

    def come_back(self) -> None:
        self._network.listen(self.address, self)
        self._renew_leases()

    def lose_leader(self) -> None:
        self.has_leader = False
        self._break_watches()
        self._hold_leases()

    def elect_leader(self) -> None:
        self.has_leader = True
        self._renew_leases()

    def mislead(self, process: SimProcess, other: EtcdServer) -> None:
        """Leads this process to another store until it ends."""
        self._misled[process] = other
        self.misled[process.host] += 1
        for stream in [s for s in self._streams if s.process is process]:
            self._break(stream)

    def reached_by(self, process: SimProcess) -> EtcdServer:
        return self._misled.get(process, self)

    def deny_watches(self, host: str) -> None:
        """Ends the watches of a host, or with an empty name all, and rejects new ones.

        This lasts until `serve_watches`.
        """
        self._refused.append(host)
        for stream in [s for s in self._streams if s.process.host.startswith(host)]:
            self.denied_watches[host] += 1
            self._break(stream)

    def serve_watches(self, host: str) -> None:
        """Ends one `deny_watches` of the same name."""
        if host in self._refused:
            self._refused.remove(host)

    def serves_watches(self, host: str) -> bool:
        """Whether watches of this host neither end nor are late by a fault."""
        if any(process.host == host for process in self._late):
            return False
        return not any(host.startswith(refused) for refused in self._refused)

    def delay_watches(self, process: SimProcess, beyond: int) -> None:
        """Delays what the process's watches bring beyond a revision, until `delay_no_more`.

        A later call sets a later revision. Answers to requests are not delayed.
        """
        self._late[process] = beyond
        self._publish_all(process)

    def delay_no_more(self, process: SimProcess) -> None:
        if self._late.pop(process, None) is not None:
            self._publish_all(process)

    def _publish_all(self, process: SimProcess) -> None:
        for stream in [s for s in self._streams if s.process is process]:
            self._publish(stream)

    def _revision_for(self, process: SimProcess) -> int:
        return min(self.data.revision, self._late.get(process, self.data.revision))

    def _break_watches(self) -> None:
        for stream in list(self._streams):
            self._break(stream)

    def _break(self, stream: _Stream) -> None:
        self._streams.pop(stream, None)
        if not self._network.send(self.process.host, stream.process, stream.end):
            self._loop.call_later(
                RESEND_DELAY_S, self._break_again, stream, context=self.process.context
            )

    def _break_again(self, stream: _Stream) -> None:
        """Sends a lost end of a watch again, as by TCP."""
        if stream.process.alive and not stream.ended:
            self._break(stream)

    # -- leases ------------------------------------------------------------------------

    def _hold_leases(self) -> None:
        """Stops the expiry of leases without a leader; a new one gives each its whole time."""
        for _, timer in self._leases.values():
            timer.cancel()

    def _renew_leases(self) -> None:
        for lease_id in list(self._leases):
            self._renew(lease_id)

    def _renew(self, lease_id: int) -> None:
        ttl_ms, timer = self._leases[lease_id]
        timer.cancel()
        self._leases[lease_id] = (ttl_ms, self._expiry(lease_id, ttl_ms))

    def _expiry(self, lease_id: int, ttl_ms: int) -> SimHandle:
        return self._loop.call_at_us(
            self._loop.now_us + ttl_ms * 1000,
            self.end_lease,
            lease_id,
            context=self.process.context,
        )

    def end_lease(self, lease_id: int) -> None:
        """Ends a lease that has expired or was revoked."""
        ended = self._leases.pop(lease_id, None)
        if ended is not None:
            ended[1].cancel()
            self.data.end_lease(lease_id)

    # -- requests ----------------------------------------------------------------------

    def serve(self, serving: Serving) -> None:
        if not self.has_leader:
            # etcd answers this at once to requests that need a leader.
            self.refused_leaderless += 1
            serving.reply(StoreUnavailableError("etcdserver: no leader"))
            return
        request: Any = serving.call.request
        answer: object
        try:
            match serving.call.kind:
                case "get":
                    answer = self.data.get(request)
                case "snapshot":
                    answer = self.data.snapshot(request)
                case "transact":
                    answer = self._transact(request, serving.call.source)
                case "grant_lease":
                    lease_id = self.data.grant_lease()
                    self._leases[lease_id] = (request, self._expiry(lease_id, request))
                    answer = lease_id
                case "keep_alive":
                    answer = request in self._leases
                    if answer:
                        self._renew(request)
                case "revoke":
                    self.end_lease(request)
                    answer = None
                case "watch":
                    answer = self._begin_watch(request)
                case kind:
                    raise AssertionError(f"etcd knows no {kind}")
        except LeaseLostError as error:
            serving.reply(error)
            return
        if not isinstance(answer, StoreUnavailableError):
            answer = StoreAnswer(answer, self.data.revision)
        serving.reply(answer)

    def _transact(self, transaction: Transaction, caller: SimProcess) -> TransactionResult:
        self.caller = caller
        try:
            return self.data.transact(transaction)
        finally:
            self.caller = None

    def _begin_watch(self, stream: _Stream) -> object:
        refused = [host for host in self._refused if stream.process.host.startswith(host)]
        if refused:
            self.denied_watches.update(refused)
            return StoreUnavailableError("etcd cancelled a watch")
        self._streams[stream] = None
        return self._revision_for(stream.process)

    def end_watch(self, stream: _Stream) -> None:
        self._streams.pop(stream, None)

    def _changed(self) -> None:
        if self.data.revision == self._told_revision:
            return
        self._told_revision = self.data.revision
        for stream in self._streams:
            self._publish(stream)

    def _publish(self, stream: _Stream) -> None:
        revision = self._revision_for(stream.process)
        if not self._network.send(self.process.host, stream.process, stream.published, revision):
            self._loop.call_later(
                RESEND_DELAY_S, self._publish_again, stream, context=self.process.context
            )

    def _publish_again(self, stream: _Stream) -> None:
        if stream in self._streams and stream.process.alive:
            self._publish(stream)


class _Stream:
    """A watch as the network carries it. `revision`: the newest that its process has received."""

    def __init__(self, process: SimProcess) -> None:
        self.process = process
        self.revision = 0
        self.ended = False
        self.wake = asyncio.Event()

    def published(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        self.wake.set()

    def end(self) -> None:
        self.ended = True
        self.wake.set()


class SimLease:
    """Works like `EtcdLease`: kept alive until the store reports that it is gone."""

    def __init__(self, store: SimStore, lease_id: int, ttl_seconds: int) -> None:
        self._store = store
        self._id = lease_id
        self._interval_ms = ttl_seconds * 1000 // KEEP_ALIVES_PER_TTL
        self._ended = asyncio.Event()
        self._closed = False
        self._failure: StoreRolledBackError | None = None
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    @property
    def id(self) -> int:
        return self._id

    async def wait_lost(self) -> None:
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreClosedError("the metadata store was closed; its leases expire")

    async def revoke(self) -> None:
        if self._ended.is_set():
            return
        await self._stop()
        await self._store.ask("revoke", self._id)
        self._ended.set()

    async def close(self) -> None:
        await self._stop()
        if not self._ended.is_set():
            self._closed = True
            self._ended.set()

    async def _stop(self) -> None:
        self._keeping_alive.cancel()
        await asyncio.wait([self._keeping_alive])

    async def _keep_alive(self) -> None:
        while True:
            try:
                if not await self._store.ask("keep_alive", self._id, self._interval_ms):
                    self._ended.set()
                    return
            except StoreUnavailableError:
                await asyncio.sleep(RETRY_DELAY_S)
            except StoreRolledBackError as error:
                self._failure = error
                self._ended.set()
                return
            else:
                await asyncio.sleep(self._interval_ms / 1000)


class SimStore:
    """The store as one process uses it."""

    def __init__(self, server: EtcdServer, network: Network, process: SimProcess) -> None:
        self._etcd = server
        self._seen = SeenRevisions()
        self._network = network
        self._process = process
        self._leases: list[SimLease] = []
        self._streams: dict[_Stream, None] = {}
        self._closed = False

    @property
    def seen_revision(self) -> int:
        return self._seen.highest

    def observe_revision(self, revision: int) -> None:
        self._seen.observe_revision(revision)

    async def get(self, key: str) -> KeyValue | None:
        found: KeyValue | None = await self.ask("get", key)
        return found

    async def snapshot(self, prefix: str) -> Snapshot:
        found: Snapshot = await self.ask("snapshot", prefix)
        return found

    async def transact(self, transaction: Transaction) -> TransactionResult:
        check_transaction(transaction)
        result: TransactionResult = await self.ask(
            "transact", transaction, wrote=lambda r: has_put(transaction) and r.succeeded
        )
        return result

    async def grant_lease(self, ttl_seconds: int) -> SimLease:
        check_lease_ttl(ttl_seconds)
        lease_id: int = await self.ask("grant_lease", ttl_seconds * 1000)
        lease = SimLease(self, lease_id, ttl_seconds)
        self._leases.append(lease)
        return lease

    async def ask(
        self,
        kind: str,
        request: object,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        wrote: Callable[[Any], bool] = lambda _: False,
    ) -> Any:
        if self._closed:
            raise StoreClosedError("the metadata store was closed; open another")
        self._seen.check()
        at_least = self._seen.highest
        try:
            answer: StoreAnswer = await self._network.call(
                kind, self._server.address, request, timeout_ms
            )
        except CallFailedError as error:
            raise StoreUnavailableError(str(error)) from None
        self._seen.answered(
            answer.revision, ETCD_CLUSTER_ID, at_least=at_least, wrote=wrote(answer.value)
        )
        return answer.value

    @property
    def _server(self) -> EtcdServer:
        return self._etcd.reached_by(self._process)

    async def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        view = WatchView(snapshot)
        while True:
            stream, server = _Stream(self._process), self._server
            self._streams[stream] = None
            try:
                stream.published(await self.ask("watch", stream))
                if not server.data.history_reaches(view.revision):
                    server.read_anew += 1
                    differences = view.catch_up(await self.snapshot(view.prefix))
                    if differences:
                        yield differences
                while not stream.ended:
                    stream.wake.clear()
                    self._seen.answered(stream.revision, ETCD_CLUSTER_ID, at_least=0)
                    for changes in _news(server.data, view, stream.revision):
                        yield changes
                    await stream.wake.wait()
            except StoreUnavailableError:
                pass
            finally:
                self._streams.pop(stream, None)
                server.end_watch(stream)
            if self._closed:
                raise StoreClosedError("the metadata store was closed; open another")
            await asyncio.sleep(RETRY_DELAY_S)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for stream in list(self._streams):
            stream.end()
        for lease in self._leases:
            with suppress(StoreClosedError):
                await lease.close()


def _news(data: MemoryData, view: WatchView, revision: int) -> list[Sequence[Changed]]:
    """Returns what a stream has brought: everything up to `revision`."""
    if revision <= view.revision:
        return []
    changes = [c for c in data.changes_after(view.revision, view.prefix) if c.revision <= revision]
    groups = view.take(changes)
    view.advance(revision)
    return groups
