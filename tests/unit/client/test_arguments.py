"""Every public method answers any arguments at once: with a result, or with an error that says what
is wrong and what would be right.
"""

import asyncio
import collections
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from tidelog.client import (
    Admin,
    Consumer,
    Identity,
    Producer,
    SyncConsumer,
    SyncProducer,
    arguments,
)
from tidelog.client.arguments import checks_arguments
from tidelog.errors import (
    ArgumentTypeError,
    ErrorCode,
    InvalidArgumentError,
    InvalidTopicNameError,
    TidelogError,
)
from tidelog.model import Acks, Codec, OffsetPosition
from unit.client.idempotent_world import World
from unit.client.memory_connections import MemoryConnections
from unit.metadata.virtual_time import run, virtual_clock

ODD: list[Any] = [
    None,
    True,
    1.5,
    math.nan,
    math.inf,
    -1,
    2**31,
    2**63,
    10**30,
    "",
    "..",
    "a/b",
    "x" * 100_000,
    "\ud800",
    "a\x00",
    b"x",
    object(),
    [],
    {},
    [None],
    [1, 2, 3],
    ["\ud800"],
    ("sea",),
    [("sea", "0")],
    {"\ud800": "x"},
    {5: None},
]
USUAL: dict[str, Any] = {
    "topic": "sea",
    "topics": ["sea"],
    "names": ["sea"],
    "bootstrap": "broker-0:1",
    "value": b"x",
    "values": [b"x"],
    "key": None,
    "keys": None,
    "partition": ("sea", 0),
    "partitions": [("sea", 0)],
    "offset": 0,
    "level": 1,
    "offsets": {("sea", 0): 1},
    "timestamp_ms": 0,
    "position": "latest",
    "topic_id": "id-of-sea",
    "next_sequence": 0,
    # Of the admin client.
    "replication_factor": 1,
    "moves": [],
    "broker_ids": [1],
    "broker_id": 1,
    "leaders": {("sea", 0): 1},
    "reversed_operation_id": "one",
    "operation_id": "one",
    "bytes_per_second": 1,
    "page_size": 1,
    "name": "pilot",
    "epoch": 1,
    "known": {"sea": 1},
}
# It ends the client.
NOT_CALLED = {"close"}
# The time limit on a loop whose clock jumps; looking up an unknown topic takes some of it.
AT_ONCE_MS = 1_500


class SentError(Exception):
    """The arguments were accepted: a request would be sent."""


class NoConnections:
    def broker(self, address: str) -> NoReturn:
        raise SentError(address)

    controller = inspected = broker

    async def close(self) -> None:
        pass


def public(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in NOT_CALLED:
            yield name, inspect.signature(method)


def calls(kind: type) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
    """Each parameter of each public method with each odd value, and usual values for the others."""
    for name, signature in public(kind):
        parameters = [*signature.parameters.values()][1:]
        required = {p.name: USUAL[p.name] for p in parameters if p.default is p.empty}
        for parameter in parameters:
            for odd in ODD:
                yield name, required | {parameter.name: odd}, parameter.name, odd


def wrong(error: BaseException) -> str:
    """The problem with the error; empty if there is none."""
    if isinstance(error, SentError):
        return ""
    if not isinstance(error, TidelogError | ValueError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, TidelogError) and error.code in (
        ErrorCode.INTERNAL,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return f"{error.code.name}: {error}"
    if len(str(error)) > 1_000:
        return f"a message of {len(str(error))} characters"
    return "" if str(error).isprintable() else f"a message that cannot be printed: {error!r}"


async def problems(kind: type, made: Callable[[], Any], arguments_of: Any = calls) -> list[str]:
    found = []
    client = made()
    for method, given, parameter, odd in arguments_of(kind):
        begun = virtual_clock().monotonic_ms()
        if method in ("poll", "poll_batches") and parameter == "timeout_ms" and odd == 2**31 - 1:
            continue
        try:
            answer = getattr(client, method)(**given)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, asyncio.Future):
                await answer
        except Exception as error:
            if problem := wrong(error):
                found.append(f"{method}({parameter}={arguments.shown(odd)}): {problem}")
        took = virtual_clock().monotonic_ms() - begun
        if took > AT_ONCE_MS:
            found.append(f"{method}({parameter}={arguments.shown(odd)}) took {took} ms")
    await client.close()
    return found


def test_a_producer_answers_odd_arguments_at_once() -> None:
    async def main() -> None:
        world = World()

        def of_producer(kind: type) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
            for method, given, parameter, odd in calls(kind):
                if parameter != "partition" and "partition" in given:
                    given["partition"] = 0
                yield method, given, parameter, odd

        assert not await problems(Producer, world.producer, of_producer)

    run(main())


def test_a_consumer_answers_odd_arguments_at_once() -> None:
    async def main() -> None:
        world = World()

        def made() -> Consumer:
            consumer = world.consumer(offsets_timeout_ms=1_000)
            consumer.assign([("sea", 0)])
            return consumer

        def of_consumer(kind: type) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
            for method, given, parameter, odd in calls(kind):
                if method in ("poll", "poll_batches"):
                    given.setdefault("timeout_ms", 0)
                yield method, given, parameter, odd

        assert not await problems(Consumer, made, of_consumer)

    run(main())


def test_an_admin_answers_odd_arguments_at_once() -> None:
    async def main() -> None:
        def made() -> Admin:
            return Admin("broker-0:1", connections=NoConnections(), clock=virtual_clock())

        def of_admin(kind: type) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
            for method, given, parameter, odd in calls(kind):
                if parameter != "partitions" and "partitions" in given:
                    given["partitions"] = (
                        1 if method in ("add_partitions", "remove_partitions") else None
                    )
                yield method, given, parameter, odd

        assert not await problems(Admin, made, of_admin)

    run(main())


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_a_client_created_with_odd_arguments_raises_a_clear_error(kind: Any) -> None:
    async def main() -> None:
        found = []
        for name in [*inspect.signature(kind.__init__).parameters][1:]:
            for odd in ODD:
                given = {"bootstrap": "broker-0:1", "connections": NoConnections(), name: odd}
                try:
                    await kind(**given).close()
                except Exception as error:
                    if problem := wrong(error):
                        found.append(f"{kind.__name__}({name}={arguments.shown(odd)}): {problem}")
        assert not found

    run(main())


# -- enumerations as strings ------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["all", "ALL", Acks.ALL])
@pytest.mark.parametrize("codec", ["zstd", "Zstd", Codec.ZSTD])
def test_enumerations_can_be_given_as_strings(acks: Any, codec: Any) -> None:
    async def main() -> None:
        world = World()
        async with world.producer(acks=acks, codec=codec) as producer:
            await (await producer.send("sea", b"x"))
        [batch] = world.sea.batches
        assert batch.header.codec == Codec.ZSTD
        async with world.consumer() as consumer:
            await consumer.assign_topic("sea", start="latest")
            assert await consumer.poll(200) == []
            consumer.assign([])
            await consumer.assign_topic("sea", start=OffsetPosition.EARLIEST)
            assert len(await consumer.poll(200)) == 1

    run(main())


@pytest.mark.parametrize(
    ("wrong_word", "says"),
    [
        ({"acks": "most"}, r"acks is 'most'; give one of 'none', 'leader', 'all'"),
        ({"codec": "brotli"}, r"codec is 'brotli'; give one of 'none', 'gzip', 'lz4', 'zstd'"),
        ({"acks": 1}, r"acks is 1; give one of 'none', 'leader', 'all', or a member of Acks"),
    ],
)
def test_an_unknown_string_is_rejected_with_the_known_ones(
    wrong_word: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        Producer("broker-0:1", **wrong_word)


@pytest.mark.parametrize("wrong_pair", [(5, 1), (0, 1), (1, 2, 3), (1,), "12", (1, "2")])
def test_a_wrong_backoff_is_an_invalid_argument(wrong_pair: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        Producer("broker-0:1", retry_backoff_ms=wrong_pair)


BYTES_LIKE = [b"zz", bytearray(b"zz"), memoryview(b"zz"), memoryview(bytes(16)).cast("q")]


@pytest.mark.parametrize("column", ["values", "keys", "timestamps_ms"])
@pytest.mark.parametrize("wrong_column", [*BYTES_LIKE, {0: 1, 1: 2}, "zz", {1, 2}, 1.5, object()])
def test_an_invalid_column_of_records_is_a_type_error(column: str, wrong_column: Any) -> None:
    async def main() -> None:
        async with World().producer() as producer:
            given: dict[str, Any] = {"values": [b"a", b"b"], column: wrong_column}
            with pytest.raises(ArgumentTypeError, match="a sequence of"):
                await producer.send_many("sea", **given)

    run(main())


@pytest.mark.parametrize("kind", [list, tuple, collections.deque, collections.UserList])
def test_any_sequence_is_a_column_of_records(kind: Any) -> None:
    async def main() -> None:
        world = World()
        values = [b"%d" % number for number in range(9)]
        async with world.producer(batch_bytes=4) as producer:
            keys, times = kind(values), kind(range(9))
            await (await producer.send_many("sea", kind(values), keys, timestamps_ms=times))
        assert world.sea.values() == values

    run(main())


def test_changes_by_the_caller_while_records_wait_are_not_sent() -> None:
    async def main() -> None:
        world = World()
        async with world.producer(linger_ms=50) as producer:
            values: list[Any] = [b"a", b"b"]
            headers: list[Any] = [("name", b"c")]
            many = asyncio.create_task(producer.send_many("sea", values))
            await asyncio.sleep(0)
            values[:] = [1, 2, 3]
            await (await many)
            one = await producer.send("sea", b"c", headers=headers)
            headers.append("wrong")
            assert (await one).offset == 2
        assert world.sea.values() == [b"a", b"b", b"c"]

    run(main())


def test_an_unknown_start_position_is_rejected_with_the_known_ones() -> None:
    async def main() -> None:
        async with World().consumer() as consumer:
            with pytest.raises(InvalidArgumentError, match="start is 'newest'; give one of 'earl"):
                await consumer.assign_topic("sea", start="newest")

    run(main())


def test_a_wrong_type_is_a_type_error_too() -> None:
    with pytest.raises(TypeError, match=r"linger_ms is 1.5 \(float\); give an integer"):
        Producer("broker-0:1", linger_ms=1.5)  # type: ignore[arg-type]
    assert issubclass(ArgumentTypeError, ValueError)


@pytest.mark.parametrize(
    ("client", "setting", "most"),
    [
        (Producer, "request_timeout_ms", 300_000),
        (Consumer, "max_wait_ms", 2**31 - 1),
        (Consumer, "min_bytes", 2**31 - 1),
        (Consumer, "max_bytes", 2**31 - 1),
    ],
)
def test_a_setting_that_no_request_can_hold_is_rejected_at_construction(
    client: Callable[..., Any], setting: str, most: int
) -> None:
    client("broker-0:1", connections=NoConnections(), **{setting: most})
    with pytest.raises(InvalidArgumentError, match=f"{setting} is .* from . to {most}"):
        client("broker-0:1", connections=NoConnections(), **{setting: most + 1})


def test_an_invalid_topic_name_is_rejected_without_a_request() -> None:
    async def main() -> None:
        async with Admin("broker-0:1", connections=NoConnections()) as admin:
            with pytest.raises(InvalidTopicNameError, match="1 to 200 characters out of a-z"):
                await admin.describe_topic("a/b")

    run(main())


def test_a_parameter_without_a_check_is_rejected_when_the_class_is_defined() -> None:
    class Forgetful:
        def find(self, mood: float) -> None: ...

    with pytest.raises(LookupError, match="no rule checks the argument mood"):
        checks_arguments()(Forgetful)


def test_clients_without_async_raise_the_same_errors() -> None:
    cluster = World().cluster
    with SyncProducer("broker-0:1", connections=MemoryConnections(cluster)) as producer:
        for odd in (None, 5, "a/b", "\ud800"):
            with pytest.raises(TidelogError):
                producer.send(odd, b"x")  # type: ignore[arg-type]
    with SyncConsumer("broker-0:1", connections=MemoryConnections(cluster)) as consumer:
        consumer.assign_topic("sea", start="latest")
        for offset in (None, -1, 1.5, 2**63, "0"):
            with pytest.raises(ValueError, match="offset"):
                consumer.seek(("sea", 0), offset)  # type: ignore[arg-type]


def test_identity_is_one_argument() -> None:
    with pytest.raises(InvalidArgumentError, match="identity is"):
        Producer("broker-0:1", identity=(1, 2))  # type: ignore[arg-type]
    assert Identity(1, 2).producer_id == 1
