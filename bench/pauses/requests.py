"""The largest and the most expensive requests of every RPC.

Every RPC of every service gets a request with each repeated field filled up to its limit
(`largest`). Requests that cost more than their size suggests are listed for the RPCs that decode,
search or describe something (`EXPENSIVE`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tidelog import v1
from tidelog.batch import new_batch
from tidelog.compression import compress
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode
from tidelog.request_bounds import (
    MAX_DESCRIBED_PRODUCERS,
    MAX_INTERNAL_REQUEST_BYTES,
    MAX_REQUEST_BYTES,
    MAX_TEXT_BYTES,
    entries_limit,
    total_entries_limit,
)
from tidelog.rpc.message_bounds import is_internal, max_request_bytes
from tidelog.rpc.wire import batch_to_wire
from tidelog.state_changes.event import Kind
from tidelog.v1 import admin_pb2, broker_pb2, scrub_pb2
from tidelog.wire_fields import encode_varint

pb = broker_pb2

# The services of controllers alone, and of both; all others belong to brokers.
_OF_CONTROLLERS = frozenset({"AdminService", "ControllerService"})
_OF_BOTH = frozenset({"InspectService", "Health", "ServerReflection"})
# Services that are not Tidelog's own.
_STANDARD = (health_pb2, reflection_pb2)
# The library that serves health checks has no List.
_NOT_SERVED = frozenset({"/grpc.health.v1.Health/List"})

# The topics of the requests.
SMALL_TOPIC, WIDE_TOPIC, LARGE_TOPIC = "pauses", "pauses-wide", "pauses-large"
WIDE_PARTITIONS = 1_000
LARGE_BATCH_BYTES = 16 << 20
_DECODED_BYTES = 64 << 20
# Fields with ids that only the cluster knows. A change of the wide topic is rejected for its topic
# id, so that the topic stays: `operations` makes the changes.
_LEFT_UNSET = {
    "tidelog/v1/broker.proto": frozenset({"topic_id"}),
    "tidelog/v1/admin.proto": frozenset({"page_token"}),
}
# Nested repeated fields of the largest request have fewer entries, so that it stays within its
# limit of bytes.
_NESTED_ENTRIES = 3


class Case(NamedTuple):
    """A request. `method`: `/package.Service/Method`. A stream of requests consists of this one."""

    name: str
    method: str
    request: Any


def rpcs_of(modules: Iterable[ModuleType]) -> Iterator[MethodDescriptor]:
    for module in modules:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def all_rpcs() -> list[MethodDescriptor]:
    """Returns the RPCs of all services, including standard ones, from the generated modules."""
    names = sorted(m.name for m in iter_modules(v1.__path__) if m.name.endswith("_pb2"))
    own = (import_module(f"{v1.__name__}.{name}") for name in names)
    return [rpc for rpc in rpcs_of((*own, *_STANDARD)) if method_name(rpc) not in _NOT_SERVED]


def broker_rpcs() -> list[MethodDescriptor]:
    return [rpc for rpc in all_rpcs() if rpc.containing_service.name not in _OF_CONTROLLERS]


def controller_rpcs() -> list[MethodDescriptor]:
    served = _OF_CONTROLLERS | _OF_BOTH
    return [rpc for rpc in all_rpcs() if rpc.containing_service.name in served]


def method_name(rpc: MethodDescriptor) -> str:
    return f"/{rpc.containing_service.full_name}/{rpc.name}"


def cases(rpcs: Iterable[MethodDescriptor]) -> Iterator[Case]:
    for rpc in rpcs:
        name = method_name(rpc)
        of_standard = rpc.containing_service.file in [each.DESCRIPTOR for each in _STANDARD]
        short = f"{rpc.containing_service.name}.{rpc.name}" if of_standard else rpc.name
        yield Case(f"{short}: largest", name, largest(rpc))
        if is_internal(name):
            yield Case(f"{short}: most entries, all empty", name, empty_entries(rpc))
        for what, make in EXPENSIVE.get(name, {}).items():
            yield Case(f"{short}: {what}", name, make())


def largest(rpc: MethodDescriptor) -> Any:
    """Returns a request with as many entries as its limits and its bytes allow."""
    made: Any = GetMessageClass(rpc.input_type)()
    fields = list(rpc.input_type.fields)
    repeated = [field for field in fields if field.is_repeated and field.containing_oneof is None]
    method = method_name(rpc)
    room = min(max_request_bytes(method), (4 if is_internal(method) else 1) * MAX_REQUEST_BYTES)
    for field in fields:
        if not field.is_repeated:
            _set(made, field)
    for field in repeated:
        _fill(made, field, room * 9 // 10 // len(repeated))
    _make_valid(made)
    return made


def empty_entries(rpc: MethodDescriptor, total: int | None = None) -> Any:
    """Returns a request with empty entries: two bytes each on the wire, and an object and a lookup
    in the service.

    Each list has its maximum number of entries; as many of them as fit have full lists themselves.

    - `total`: the number of entries of all lists together; None: the maximum of the request.
    """
    made: Any = GetMessageClass(rpc.input_type)()
    total = total or total_entries_limit(rpc.input_type.full_name)
    lists = [f for f in rpc.input_type.fields if f.is_repeated and f.message_type is not None]
    left = total - sum(entries_limit(field.full_name) for field in lists)
    room = MAX_INTERNAL_REQUEST_BYTES // 2
    for field in lists:
        of_entry: Any = GetMessageClass(field.message_type)  # type: ignore[arg-type]
        full, empty = of_entry(), of_entry()
        held = _fill_with_empty(full)
        fitting = min(left // held, room // full.ByteSize()) if held else 0
        limit = entries_limit(field.full_name)
        count = max(min(fitting, limit), 0)
        getattr(made, field.name).extend([full] * count + [empty] * (limit - count))
        left -= count * held
    return made


def _fill_with_empty(message: Any) -> int:
    """Fills each list of the message, at any depth. Returns the number of entries."""
    count = 0
    for field in message.DESCRIPTOR.fields:
        limit = entries_limit(field.full_name)
        if not field.is_repeated:
            if field.message_type is not None:
                count += _fill_with_empty(getattr(message, field.name))
        elif field.message_type is None:
            empty = "" if field.type == FieldDescriptor.TYPE_STRING else 0
            getattr(message, field.name).extend([empty] * limit)
            count += limit
        elif field.message_type.GetOptions().map_entry:
            _fill(message, field, MAX_REQUEST_BYTES)
            count += limit
        else:
            entry = GetMessageClass(field.message_type)()
            getattr(message, field.name).extend([entry] * limit)
            count += limit
    return count


def _make_valid(request: Any) -> None:
    """Makes the request valid where its fields exclude each other or have few values.

    It must not be rejected before its cost arises."""
    match request.DESCRIPTOR.name:
        case "ProduceRequest":
            request.acks, request.timeout_ms = pb.ACKS_LEADER, 30_000
        case "InitProducerIdRequest":
            request.ClearField("named_epoch")
        case "ListOffsetsRequest":
            for entry in request.partitions:
                entry.partition %= WIDE_PARTITIONS
                entry.position = pb.OFFSET_POSITION_TIMESTAMP
                entry.current_leader_epoch = -1
        case "DescribeProducersRequest":
            request.ClearField("fence")
            request.page_size, request.from_producer_id = MAX_DESCRIBED_PRODUCERS, 0
        case "WatchEventsRequest":
            request.kinds[:] = [Kind.CREATE.value] * len(request.kinds)
        case "ExplainRequest":
            request.timeout_ms = 1_000
        case "HealthCheckRequest":
            # The service as a whole; another name is of no service.
            request.service = ""
        case _:
            pass


def _fill(message: Any, field: FieldDescriptor, room_bytes: int) -> None:
    limit = entries_limit(field.full_name)
    entries = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for number in range(min(limit, room_bytes // 40)):
            if field.message_type.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING:
                with_text = field.message_type.fields_by_name["value"].type
                is_text = with_text == FieldDescriptor.TYPE_STRING
                entries[f"key-{number}"] = "1" if is_text else 1
        return
    if field.message_type is None:
        entry = _scalar(field)
        size = len(str(entry)) + 2
        entries.extend([entry] * min(limit, room_bytes // size))
        return
    first = entries.add()
    # As many as fit into all lists of the request together.
    total = total_entries_limit(message.DESCRIPTOR.full_name)
    _set_all(first, depth=2, nested=max(1, min(_NESTED_ENTRIES, total // limit - 1)))
    has_partition = "partition" in first.DESCRIPTOR.fields_by_name
    size = first.ByteSize() + 5
    for number in range(1, min(limit, max(room_bytes // size, 1))):
        entry = entries.add()
        entry.CopyFrom(first)
        if has_partition:
            entry.partition = number
    if has_partition:
        entries[0].partition = 0


def _set_all(message: Any, depth: int, nested: int = _NESTED_ENTRIES) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_repeated:
            _set(message, field, depth)
        elif field.message_type is None:
            getattr(message, field.name).extend([_scalar(field)] * nested)
        elif depth > 0 and not field.message_type.GetOptions().map_entry:
            for _ in range(nested):
                _set_all(getattr(message, field.name).add(), depth - 1)


def _set(message: Any, field: FieldDescriptor, depth: int = 2) -> None:
    if field.containing_oneof is not None and message.WhichOneof(field.containing_oneof.name):
        return
    if field.message_type is not None:
        if depth > 0:
            _set_all(getattr(message, field.name), depth - 1)
    elif field.name == "topic":
        message.topic = WIDE_TOPIC
    elif field.name in _LEFT_UNSET.get(message.DESCRIPTOR.file.name, ()):
        return
    elif field.type not in (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_BOOL):
        setattr(message, field.name, _scalar(field))


def _scalar(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return WIDE_TOPIC if "topic" in field.name else "name-of-something-22"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"bytes"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return 1.0
    return 1


# -- requests that cost more than their size suggests ----------------------------------------


def produce(topic: str, *batches: Batch) -> Any:
    wire = [batch_to_wire(batch) for batch in batches]
    partition = pb.ProducePartition(topic=topic, partition=0, batches=wire)
    return pb.ProduceRequest(acks=pb.ACKS_LEADER, timeout_ms=30_000, partitions=[partition])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def empty_records(count: int, stated: int | None = None) -> Batch:
    """Returns a batch of empty records. `stated`: the count in the header."""
    plain = b"\x22" + encode_varint(count) + bytes(count)
    return new_batch(
        compress(Codec.ZSTD, plain),
        codec=Codec.ZSTD,
        record_count=count if stated is None else stated,
        base_timestamp_ms=now_ms(),
        max_timestamp_ms=now_ms(),
    )


def many_headers() -> Batch:
    count, each = 100_000, 1_000
    headers = {index: [("", b"")] * each for index in range(count // each)}
    return encode([b"v"] * len(headers), timestamps_ms=now_ms(), headers=headers)


def small_headers(codec: Codec) -> Batch:
    """Returns as many headers as a batch may have that its size marks as cheap to decode."""
    headers = {index: [("", b"")] * 1_000 for index in range(50)}
    return encode([b"v"] * 50, timestamps_ms=now_ms(), headers=headers, codec=codec)


def understated() -> Batch:
    """Returns 64 MiB of gzip whose frame states a size of 100 bytes."""
    sound = zeros(Codec.GZIP)
    lying = sound.records[:-4] + (100).to_bytes(4, "little")
    return new_batch(
        lying,
        codec=Codec.GZIP,
        record_count=1,
        base_timestamp_ms=now_ms(),
        max_timestamp_ms=now_ms(),
    )


def most_records(codec: Codec = Codec.NONE) -> Batch:
    began = now_ms()
    times = [began + index % 2 for index in range(100_000)]
    return encode([b"v"] * len(times), [b"k"] * len(times), timestamps_ms=times, codec=codec)


def zeros(codec: Codec) -> Batch:
    """Returns as many bytes as a batch may have after decompression."""
    return encode([bytes(_DECODED_BYTES - 1_024)], timestamps_ms=now_ms(), codec=codec)


def incompressible() -> Batch:
    block = bytes((index * 2_654_435_761 >> 7) & 0xFF for index in range(1 << 16))
    return encode([block * ((LARGE_BATCH_BYTES >> 16) - 1)], timestamps_ms=now_ms())


def wide_produce() -> Any:
    batch = batch_to_wire(encode([b"v"], timestamps_ms=now_ms()))
    return pb.ProduceRequest(
        acks=pb.ACKS_LEADER,
        timeout_ms=30_000,
        partitions=[
            pb.ProducePartition(topic=WIDE_TOPIC, partition=number, batches=[batch])
            for number in range(WIDE_PARTITIONS)
        ],
    )


def fetch(topic: str, partitions: int) -> Any:
    return pb.FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=32 << 20,
        partitions=[
            pb.FetchPartition(topic=topic, partition=n, current_leader_epoch=-1, max_bytes=32 << 20)
            for n in range(partitions)
        ],
    )


def list_offsets(topic: str, partitions: int, times: int = 1) -> Any:
    return pb.ListOffsetsRequest(
        partitions=[
            pb.ListOffsetsPartition(
                topic=topic,
                partition=n,
                current_leader_epoch=-1,
                position=pb.OFFSET_POSITION_TIMESTAMP,
                timestamp_ms=1,
            )
            for _ in range(times)
            for n in range(partitions)
        ]
    )


def all_partitions() -> range:
    return range(WIDE_PARTITIONS)


def elect_all(times: int) -> Any:
    """Returns a request that names one topic repeatedly, with all of its partitions."""
    selectors = [admin_pb2.PartitionSelector(topic=WIDE_TOPIC) for _ in range(times)]
    return admin_pb2.ElectPreferredLeadersRequest(partitions=selectors, timeout_ms=1_000)


def move_leaders() -> Any:
    moves = [
        admin_pb2.LeaderMove(topic=WIDE_TOPIC, partition=n, leader=1) for n in all_partitions()
    ]
    return admin_pb2.MoveLeadersRequest(moves=moves, timeout_ms=1_000)


def reassign() -> Any:
    moves = [admin_pb2.Move(topic=WIDE_TOPIC, partition=n, target=[1]) for n in all_partitions()]
    return admin_pb2.ReassignRequest(moves=moves, dry_run=True)


def create_topic() -> Any:
    return admin_pb2.CreateTopicRequest(
        topic="pauses-new", partitions=WIDE_PARTITIONS, replication_factor=1, dry_run=True
    )


def add_partitions() -> Any:
    return admin_pb2.AddPartitionsRequest(
        topic=SMALL_TOPIC, partitions=WIDE_PARTITIONS, dry_run=True
    )


def unknown_service() -> Any:
    return health_pb2.HealthCheckRequest(service="n" * MAX_TEXT_BYTES)


def description() -> Any:
    """Returns a request for a large file that brokers and controllers have."""
    return reflection_pb2.ServerReflectionRequest(file_by_filename="tidelog/v1/inspect.proto")


_ADMIN = "/tidelog.v1.AdminService"
_BROKER = "/tidelog.v1.BrokerService"
EXPENSIVE: dict[str, dict[str, Callable[[], Any]]] = {
    "/grpc.health.v1.Health/Check": {"longest name": unknown_service},
    "/grpc.health.v1.Health/Watch": {"longest name": unknown_service},
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {
        "large file": description,
        "list of services": lambda: reflection_pb2.ServerReflectionRequest(list_services=""),
    },
    f"{_BROKER}/Produce": {
        "40 million empty records": lambda: produce(SMALL_TOPIC, empty_records(40_000_000)),
        "40 million lengths of one record": lambda: produce(
            SMALL_TOPIC, empty_records(40_000_000, 1)
        ),
        "100,000 headers": lambda: produce(SMALL_TOPIC, many_headers()),
        "100,000 records": lambda: produce(SMALL_TOPIC, most_records()),
        "100,000 records, gzip": lambda: produce(SMALL_TOPIC, most_records(Codec.GZIP)),
        "64 MiB decoded, zstd": lambda: produce(LARGE_TOPIC, zeros(Codec.ZSTD)),
        "64 MiB decoded, gzip": lambda: produce(LARGE_TOPIC, zeros(Codec.GZIP)),
        "64 MiB decoded, lz4": lambda: produce(LARGE_TOPIC, zeros(Codec.LZ4)),
        "32 batches of 50,000 headers, zstd": lambda: produce(
            SMALL_TOPIC, *[small_headers(Codec.ZSTD)] * 32
        ),
        "2 batches of 50,000 headers": lambda: produce(
            SMALL_TOPIC, *[small_headers(Codec.NONE)] * 2
        ),
        "4 batches of 64 MiB decoded, zstd": lambda: produce(LARGE_TOPIC, *[zeros(Codec.ZSTD)] * 4),
        "8 gzip frames that understate 64 MiB": lambda: produce(LARGE_TOPIC, *[understated()] * 8),
        "16 MiB": lambda: produce(LARGE_TOPIC, incompressible()),
        "1,000 batches": lambda: produce(
            SMALL_TOPIC, *[encode([b"v"], timestamps_ms=now_ms())] * 1_000
        ),
        "1,000 partitions": wide_produce,
    },
    f"{_BROKER}/Fetch": {
        "1,000 partitions": lambda: fetch(WIDE_TOPIC, WIDE_PARTITIONS),
        "32 MiB": lambda: fetch(LARGE_TOPIC, 1),
    },
    f"{_BROKER}/ListOffsets": {
        "by time, of 1,000 partitions": lambda: list_offsets(WIDE_TOPIC, WIDE_PARTITIONS),
        "by time, large batches": lambda: list_offsets(LARGE_TOPIC, 1, 64),
        "by time, many headers": lambda: list_offsets(SMALL_TOPIC, 1, 64),
    },
    f"{_BROKER}/Metadata": {"all topics": pb.MetadataRequest},
    "/tidelog.v1.ScrubService/Scrub": {
        "at full rate": lambda: scrub_pb2.ScrubRequest(begin=True, full_rate=True)
    },
    f"{_ADMIN}/CreateTopic": {"1,000 partitions, dry run": create_topic},
    f"{_ADMIN}/AddPartitions": {"1,000 partitions, dry run": add_partitions},
    f"{_ADMIN}/DescribeTopics": {
        "all, with their partitions": lambda: admin_pb2.DescribeTopicsRequest(page_size=1_000)
    },
    f"{_ADMIN}/Reassign": {"1,000 partitions, dry run": reassign},
    f"{_ADMIN}/Rebalance": {"dry run": lambda: admin_pb2.RebalanceRequest(dry_run=True)},
    f"{_ADMIN}/ElectPreferredLeaders": {
        "one topic 2,000 times": lambda: elect_all(2_000),
        "all topics": lambda: elect_all(0),
    },
    f"{_ADMIN}/MoveLeaders": {"1,000 partitions": move_leaders},
    f"{_ADMIN}/DescribeRecovery": {
        "of all topics": lambda: admin_pb2.DescribeRecoveryRequest(page_size=1_000)
    },
    f"{_ADMIN}/CheckRestart": {
        "of all replicas": lambda: admin_pb2.CheckRestartRequest(broker_id=1, page_size=1_000)
    },
}
