"""The outcome of a record that a `SyncProducer` sends."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.client.background import BackgroundClient
from tidelog.client.delivery import Delivery, DeliveryFuture
from tidelog.errors import ClientClosedError
from tidelog.former_modules import FORMER_NAMES_END


class SyncDelivery:
    """Outcome of one record, which any number of threads may wait for; with the methods of
    `concurrent.futures.Future`.

    It cannot be cancelled: sent records cannot be recalled. A known outcome can be read in any
    thread and process, also after `close`, which delivers or reports every record. Waiting for
    another one raises as calls of the producer in a forked child or in the client's own thread. If
    it is an error that is never read, asyncio logs it."""

    # No `concurrent.futures.Future`: a waiting thread holds the lock that its outcome needs when a
    # signal handler runs, and the handler may wait for the event loop (`loop_thread`).
    __slots__ = ("_delivery", "_producer")

    def __init__(self, producer: BackgroundClient[Any], delivery: DeliveryFuture[Delivery]) -> None:
        self._producer = producer
        self._delivery = delivery

    def __repr__(self) -> str:
        state = "no outcome yet"
        if self._delivery.done():
            state = repr(self._delivery._exception or self._delivery.result())
        return f"<SyncDelivery: {state}>"

    def done(self) -> bool:
        """Returns whether the outcome is known."""
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> Delivery:
        """Waits until the record is delivered. Raises its error.

        `timeout`: seconds, after which TimeoutError is raised; the record is still delivered, or
        reported, within its `delivery_timeout_ms`."""
        self._wait(timeout)
        return self._delivery.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as `result`. Returns the record's error; None: it is delivered."""
        self._wait(timeout)
        return self._delivery.exception()

    def add_done_callback(self, fn: Callable[[SyncDelivery], object]) -> None:
        """Calls `fn` with this object when the outcome is known: in the client's own thread, or at
        once if it is known already. `fn` may not call the client. The event loop reports what it
        raises."""
        if self._delivery.done():
            fn(self)
            return

        async def add() -> None:
            self._delivery.add_done_callback(lambda _: fn(self))

        try:
            self._producer._run(add())
        except ClientClosedError:
            # It was not added; `close` has given the record its outcome meanwhile.
            if not self._delivery.done():
                raise
            fn(self)

    def _wait(self, timeout: float | None) -> None:
        if self._delivery.done():
            return
        try:
            self._producer._run(self._wait_on_loop(timeout))
        except ClientClosedError:
            # `close` gives each record its outcome before it ends the event loop.
            if not self._delivery.done():
                raise
        if not self._delivery.done():
            raise TimeoutError(
                f"the record has no outcome after {timeout} s; it is delivered or reported within "
                "its delivery_timeout_ms"
            )

    async def _wait_on_loop(self, timeout: float | None) -> None:
        await asyncio.wait((self._delivery,), timeout=timeout)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The fields of `Delivery`, which `SyncProducer.send` returned formerly."""
            if name not in Delivery._fields:
                raise AttributeError(f"{type(self).__name__} has no attribute {name}")
            warnings.warn(
                f"SyncProducer.send returns a future; read send(...).result().{name}, or call "
                f"send_and_wait; {name} of the future is removed in version {FORMER_NAMES_END}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self.result(), name)
