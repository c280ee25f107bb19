"""The relay on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from faults.relay import Manner, Relay, Way
from faults.relayed_traffic import RelayedTraffic, SharedRelay, together

WAIT_S = 10.0
LITTLE_S = 0.05


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[SharedRelay]:
    """A relay in front of an echo server."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    relay = SharedRelay(f"{host}:{port}")
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
        server.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> bytes:
        self.writer.write(data)
        async with asyncio.timeout(WAIT_S):
            return await self._reader.read(1024)

    async def says_in_vain(self, data: bytes) -> bool:
        """Whether the connection breaks on a send, with a reset or an end."""
        try:
            return await self.say(data) == b""
        except ConnectionError:
            return True

    async def hears(self, within_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(within_s):
                return await self._reader.read(1024)
        except TimeoutError:
            return None


async def connect(relay: Relay) -> Client:
    host, _, port = relay.address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def test_data_passes_in_both_directions() -> None:
    async with relayed() as relay:
        client = await connect(relay)

        assert await client.say(b"calm") == b"calm"
        assert relay.counts.bytes_through == 8
        assert relay.counts.bytes_delayed == 0


async def test_data_sent_before_the_end_arrives_late_and_intact() -> None:
    async with relayed() as relay:
        await relay.behave(Manner(delay_ms=20))
        client = await connect(relay)
        client.writer.write(b"last")
        client.writer.write_eof()

        assert await client.hears(WAIT_S) == b"last"
        assert await client.hears(WAIT_S) == b""


async def test_a_delay_applies_to_each_direction() -> None:
    async with relayed() as relay:
        client = await connect(relay)
        await client.say(b"calm")
        await relay.behave(Manner(delay_ms=40))

        began_s = asyncio.get_running_loop().time()
        await client.say(b"slow")

        assert asyncio.get_running_loop().time() - began_s >= 0.08
        assert relay.counts.bytes_delayed == 8
        assert relay.counts.least_delay_ms >= 40


async def test_a_cut_breaks_connections_and_accepts_no_others() -> None:
    async with relayed() as relay:
        client = await connect(relay)
        await client.say(b"calm")

        await relay.behave(Manner(cut=True))

        assert await client.says_in_vain(b"lost")
        assert await (await connect(relay)).says_in_vain(b"anybody")
        assert relay.counts.connections_cut == 2


async def test_after_a_cut_new_connections_pass() -> None:
    async with relayed() as relay:
        await relay.behave(Manner(cut=True))
        await relay.behave(Manner())

        assert await (await connect(relay)).say(b"back") == b"back"


@pytest.mark.parametrize("way", Way)
async def test_one_direction_can_be_held_back(way: Way) -> None:
    async with relayed() as relay:
        client = await connect(relay)
        await client.say(b"calm")

        await relay.behave(Manner(held=[way]))
        client.writer.write(b"held")
        async with asyncio.timeout(WAIT_S):
            while not relay.counts.bytes_held:
                assert await client.hears(LITTLE_S) is None
        assert relay.counts.bytes_held == 4
        await relay.behave(Manner())

        assert await client.hears(WAIT_S) == b"held"


async def test_connections_without_a_server_break() -> None:
    relay = Relay("127.0.0.1:1")
    await relay.start()
    try:
        client = await connect(relay)
        assert await client.hears(WAIT_S) in (b"", None)
    except ConnectionError:
        pass
    finally:
        await relay.stop()


async def test_conditions_of_several_faults_apply_together() -> None:
    async with relayed() as relay:
        slow = RelayedTraffic([relay], Manner(delay_ms=20))
        cut = RelayedTraffic([relay], Manner(cut=True))
        await slow.begin()
        await cut.begin()
        await cut.heal()
        client = await connect(relay)
        await client.say(b"slow")

        assert (await slow.counts()).bytes_delayed == 8
        await slow.heal()
        await client.say(b"calm")
        assert (await slow.counts()).bytes_delayed == 8


def test_the_longest_delay_applies() -> None:
    manner = together([Manner(delay_ms=20), Manner(delay_ms=100, held=[Way.OUT])])

    assert manner == Manner(100, False, [Way.OUT])
