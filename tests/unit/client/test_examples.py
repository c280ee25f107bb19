"""The examples in the client's docstrings run against a broker in memory."""

import asyncio
import doctest
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tidelog import client
from tidelog.client import admin, consumer, partitioner, producer, serializers, sync
from tidelog.errors import TidelogError
from tidelog.testing import MemoryBroker


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with MemoryBroker() as broker, client.SyncAdmin(broker.bootstrap) as chief:
        chief.create_topic("sea")
        yield broker.bootstrap


def example_of(module: ModuleType) -> str:
    """The indented blocks of a module's docstring."""
    lines = (inspect.getdoc(module) or "").splitlines()
    return textwrap.dedent("\n".join(line for line in lines if line.startswith("    ") or not line))


def run(code: str, bootstrap: str) -> None:
    body = textwrap.indent(code.replace("127.0.0.1:7500", bootstrap), "    ")
    names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__}
    exec(f"async def example():\n{body}", names)

    async def wait() -> None:
        await asyncio.wait_for(names["example"](), 5)

    asyncio.run(wait())


def test_the_example_of_the_producer(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(example_of(producer), bootstrap)
    assert capsys.readouterr().out == "0\n"


def test_the_example_of_the_consumer(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    with client.SyncProducer(bootstrap) as sender:
        sender.send("sea", b"calm", key=b"north")
    # The example reads without end.
    code = example_of(consumer).rstrip() + "\n        break\n"
    run(code, bootstrap)
    assert capsys.readouterr().out == "0 b'north' b'calm'\n"


def test_the_example_of_admin(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = example_of(admin).replace('"sea"', '"bay"')
    run(code, bootstrap)
    assert "name='bay'" in capsys.readouterr().out


def test_the_example_without_async(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(example_of(sync), bootstrap)
    delivery, value = capsys.readouterr().out.splitlines()
    assert "offset=0" in delivery
    assert value == "b'calm'"


def test_the_example_of_serializers(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(example_of(serializers), bootstrap)
    assert capsys.readouterr().out == "{'wave_m': 2.5}\n"


def test_the_synchronous_interface_reaches_everything(bootstrap: str) -> None:
    with client.SyncAdmin(bootstrap) as chief:
        chief.create_topic("bay", 2)
        assert len(chief.describe_topic("bay").partitions) == 2
        assert len(chief.ask(lambda admin: admin.describe_topic("bay")).partitions) == 2
        assert {t.name for t in chief.list_topics()} == {"bay", "sea"}
        assert len(chief.describe_cluster().cluster_id) == 22
        chief.delete_topic("bay")
        assert chief.init_producer_id() == (1, 0)
        assert chief.init_producer_id("tide") == ((1 << 62) + 2, 0)
        assert chief.describe_producers("sea") == {0: []}
    with client.SyncProducer(bootstrap, linger_ms=0) as sender:
        reports = sender.send_many("sea", [b"1", b"2", b"3"])
        assert [r.record_count for r in reports] == [3]
    with client.SyncConsumer(bootstrap, max_wait_ms=50) as reader:
        reader.assign([("sea", 0)])
        assert [r.value for r in reader.poll(2000)] == [b"1", b"2", b"3"]
        reader.seek(("sea", 0), 1)
        assert reader.position(("sea", 0)) == 1
        assert next(iter(reader)).value == b"2"
        reader.seek_to_beginning()
        assert reader.poll_batches(2000)[0].record_count == 3
        reader.seek_to_end()
        assert reader.end_offsets([("sea", 0)]) == {("sea", 0): 3}
        reader.seek_to_time(0)
        assert reader.position(("sea", 0)) == 0
    with pytest.raises(TidelogError, match="closed"):
        reader.poll(1)


def test_the_doctests_pass() -> None:
    assert doctest.testmod(partitioner).failed == 0
