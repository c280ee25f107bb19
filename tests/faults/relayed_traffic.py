"""Relays that several faults share: their delays and cuts are combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from faults.relay import Counts, Manner, Relay, Way


def together(manners: Sequence[Manner]) -> Manner:
    """The longest delay; cut or held if any of them is."""
    return Manner(
        max((manner.delay_ms for manner in manners), default=0),
        any(manner.cut for manner in manners),
        [way for way in Way if any(way in manner.held for manner in manners)],
    )


class SharedRelay(Relay):
    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._manners: list[Manner] = []

    async def add(self, manner: Manner) -> None:
        self._manners.append(manner)
        await self.behave(together(self._manners))

    async def remove(self, manner: Manner) -> None:
        """Removes this very object: others may be equal to it."""
        self._manners = [other for other in self._manners if other is not manner]
        await self.behave(together(self._manners))


class RelayedTraffic:
    """The `Manner` of one fault, in force in some relays from `begin` to `heal`."""

    def __init__(self, relays: Sequence[SharedRelay], manner: Manner) -> None:
        self._relays = relays
        self._manner = manner
        self._before: list[Counts] = []

    async def begin(self) -> None:
        self._before = [replace(relay.counts) for relay in self._relays]
        for relay in self._relays:
            await relay.add(self._manner)

    async def counts(self) -> Counts:
        """Counts since this fault began. The least delay is that since the relay began, which is no
        more."""
        total = Counts()
        for relay, before in zip(self._relays, self._before, strict=True):
            now = relay.counts
            total.bytes_through += now.bytes_through - before.bytes_through
            total.bytes_held += now.bytes_held - before.bytes_held
            total.connections_cut += now.connections_cut - before.connections_cut
            if now.bytes_delayed > before.bytes_delayed:
                total.delayed(now.bytes_delayed - before.bytes_delayed, now.least_delay_ms)
        return total

    async def heal(self) -> None:
        for relay in self._relays:
            await relay.remove(self._manner)
