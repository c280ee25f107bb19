"""A watch of a prefix in etcd that survives lost streams, restarts and compactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import structlog
from aetcd import rpc

from tidelog_runtime.cooperative import is_being_cancelled
from tidelog_runtime.metadata.etcd_endpoints import HAS_LEADER, Endpoint, EtcdEndpoints
from tidelog_runtime.metadata.etcd_messages import (
    CompactedError,
    changes,
    first_key,
    prefix_end,
    store_error,
)
from tidelog_runtime.metadata.store import Changed, Snapshot, StoreUnavailableError
from tidelog_runtime.metadata.watch_view import SilenceBound, WatchView

ReadSnapshot = Callable[[str], Awaitable[Snapshot]]

# A single lost stream is an endpoint that restarts; the next attempt finds another one.
FAILURES_UNTIL_LOST = 2

_log = structlog.get_logger()


class _SilentWatchError(Exception):
    """The stream is open but lacks changes that the store has reported elsewhere."""


class EtcdWatch:
    """A watch from a snapshot on.

    - `read_snapshot`: reads the prefix again after a compaction.
    - `confirm`: a linearizable read, whose answer shows whether the store was rolled back.
    """

    def __init__(
        self,
        endpoints: EtcdEndpoints,
        snapshot: Snapshot,
        *,
        read_snapshot: ReadSnapshot,
        confirm: Callable[[], Awaitable[object]],
    ) -> None:
        self._endpoints = endpoints
        self._view = WatchView(snapshot)
        self._read_snapshot = read_snapshot
        self._confirm = confirm
        # Failures in a row without a message in between; they determine the pause.
        self._failures = 0
        self._has_to_reread = False
        self._silence = SilenceBound()
        self._is_silent = False
        self._said_lost = False

    async def run(self) -> AsyncIterator[Sequence[Changed]]:
        view = self._view
        while True:
            try:
                if self._has_to_reread:
                    differences = view.catch_up(await self._read_snapshot(view.prefix))
                    self._has_to_reread = False
                    self._classify_silence(differences)
                    if differences:
                        yield differences
                async with self._stream() as stream:
                    self._log_recovered()
                    while True:
                        response = await stream.read()
                        self._failures = 0
                        for group in self._take(response):
                            yield group
            except CompactedError:
                self._has_to_reread = True
            except _SilentWatchError:
                self._has_to_reread = self._is_silent = True
            except StoreUnavailableError as error:
                view.lose_stream()
                self._failures += 1
                self._log_lost(error)
                await asyncio.sleep(self._endpoints.pause_ms(self._failures) / 1000)

    def _classify_silence(self, differences: Sequence[Changed]) -> None:
        if not self._is_silent:
            return
        self._is_silent = False
        if differences:
            _log.warning("etcd_watch_was_silent", ms=self._silence.ms, missed=len(differences))
        self._silence.read_again(has_differences=bool(differences))

    async def _notice_silence(self, stream: _Stream) -> None:
        """Ends a stream that stays silent although the store has newer revisions.

        Answers to the keep-alives of leases show the store's revision several times in the
        period. Without this check, a silent stream on a live connection would hide all changes
        from this process, including the end of its own registration.
        """
        while True:
            owed, had = self._endpoints.seen.highest, self._view.revision
            await asyncio.sleep(self._silence.ms / 1000)
            if self._view.revision == had < owed:
                stream.end_silent()
                return

    def _log_lost(self, error: StoreUnavailableError) -> None:
        """Logs a lost store once, however long it lasts.

        Services continue with the metadata that they have, and the log explains why nothing
        changes.
        """
        if self._failures >= FAILURES_UNTIL_LOST and not self._said_lost:
            self._said_lost = True
            _log.warning(
                "etcd_lost",
                why=str(error),
                fix="start etcd again, or repair the network to it; this service keeps trying "
                "and continues with the metadata that it has",
            )

    def _log_recovered(self) -> None:
        if self._said_lost:
            self._said_lost = False
            _log.info("etcd_back")

    def _take(self, response: Any) -> list[Sequence[Changed]]:
        view, header = self._view, response.header
        self._endpoints.seen.answered(header.revision, header.cluster_id, at_least=0)
        if not response.events:
            # A progress notification. etcd sends it through the same queue as events (unless it was
            # requested by a message), so all events before it have arrived.
            view.advance(header.revision)
            return []
        return view.take(changes(response.events), more=response.fragment)

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[_Stream]:
        """Yields a stream that the store has accepted.

        Raises `CompactedError`, and `StoreUnavailableError` after moving on to the next
        endpoint.
        """
        endpoints = self._endpoints
        endpoint = await endpoints.connected(endpoints.now_ms() + endpoints.request_timeout_ms)
        stream = _Stream(endpoints, endpoint)
        try:
            created = await stream.open(self._view)
            header = created.header
            if endpoints.seen.is_behind(header.revision, header.cluster_id):
                await self._confirm()
            listening = asyncio.create_task(self._notice_silence(stream))
            try:
                yield stream
            finally:
                listening.cancel()
        except StoreUnavailableError:
            endpoints.rotate(endpoint)
            raise
        finally:
            stream.close()


class _Stream:
    """One gRPC stream with a single watch."""

    def __init__(self, endpoints: EtcdEndpoints, endpoint: Endpoint) -> None:
        self._endpoints = endpoints
        self._endpoint = endpoint
        self._call = endpoint.watch.Watch(metadata=HAS_LEADER)
        self._abandoned = False
        self._was_silent = False
        endpoint.streams.add(self._abandon)

    async def open(self, view: WatchView) -> Any:
        """Starts the watch *at* the last revision, not after it.

        If the next revision was compacted, etcd reports it only in this case. Otherwise it
        omits what that revision deleted.
        """
        request = rpc.WatchCreateRequest(
            key=first_key(view.prefix),
            range_end=prefix_end(view.prefix),
            start_revision=view.revision,
            progress_notify=True,
            # Otherwise the backlog of a slow watch may exceed the message limit.
            fragment=True,
        )
        timeout_ms = self._endpoints.request_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._write(rpc.WatchRequest(create_request=request))
                return await self.read()
        except TimeoutError:
            raise StoreUnavailableError(
                f"etcd at {self._endpoint.address} did not begin a watch in {timeout_ms} ms"
            ) from None

    async def read(self) -> Any:
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise store_error(error, self._endpoint.address) from error
        except asyncio.CancelledError:
            self._raise_if_ended()
            raise
        if not isinstance(response, rpc.WatchResponse):
            raise StoreUnavailableError(f"etcd at {self._endpoint.address} ended a watch")
        if response.compact_revision:
            raise CompactedError(f"compacted up to revision {response.compact_revision}")
        if response.canceled:
            raise StoreUnavailableError(
                f"etcd at {self._endpoint.address} cancelled a watch: {response.cancel_reason}"
            )
        return response

    def close(self) -> None:
        self._endpoint.streams.discard(self._abandon)
        self._call.cancel()

    def end_silent(self) -> None:
        """Ends the stream; its reader gets `_SilentWatchError`."""
        self._was_silent = True
        self._call.cancel()

    def _abandon(self) -> None:
        self._abandoned = True
        self._call.cancel()

    def _raise_if_ended(self) -> None:
        """Raises the error of a stream that this process ended.

        gRPC reports an ended stream as a cancellation. Returns if the task itself is being
        cancelled.
        """
        self._endpoints.raise_if_closed()
        if self._was_silent and not is_being_cancelled():
            raise _SilentWatchError from None
        if self._abandoned and not is_being_cancelled():
            raise StoreUnavailableError(
                f"etcd at {self._endpoint.address} has stopped answering other requests"
            ) from None

    async def _write(self, request: Any) -> None:
        try:
            # The stream may have ended before it began; reading raises the reason.
            with suppress(asyncio.InvalidStateError):
                await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise store_error(error, self._endpoint.address) from error
        except asyncio.CancelledError:
            self._raise_if_ended()
            raise
