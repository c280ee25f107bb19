"""The gRPC API, from the comments of `proto/`, which the compiler keeps in a descriptor set."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from tidelog_docs.markdown import cell, code, prose, table

PROTO = Path(__file__).parents[2] / "proto"
PACKAGE = ".tidelog.v1."

# Numbers of repeated fields in descriptors; a comment's place is a path of numbers and indexes.
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_FIELD, _NESTED_MESSAGE, _NESTED_ENUM = 2, 3, 4
_MEMBER = 2

Path_ = tuple[int, ...]
Comments = Mapping[Path_, str]


@cache
def descriptors() -> FileDescriptorSet:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "descriptors.pb"
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}"),
                *("--include_source_info", f"--descriptor_set_out={output}"),
                *map(str, sorted(PROTO.rglob("*.proto"))),
            ],
            check=True,
        )
        return FileDescriptorSet.FromString(output.read_bytes())


def comments(file: FileDescriptorProto) -> Comments:
    return {
        tuple(place.path): (place.leading_comments or place.trailing_comments).strip()
        for place in file.source_code_info.location
    }


def grpc() -> str:
    files = sorted(descriptors().file, key=lambda file: file.name)
    overview = table(
        ("service", "RPCs", "file"),
        (
            (f"[{service.name}](#{service.name.lower()})", str(len(service.method)), file.name)
            for file in files
            for service in file.service
        ),
    )
    return "\n\n".join((overview, *(part for file in files for part in _file(file))))


def _file(file: FileDescriptorProto) -> Iterator[str]:
    known = comments(file)
    yield f"## {file.name.rpartition('/')[2]}"
    for index, service in enumerate(file.service):
        yield from _service(service, (_SERVICE, index), known)
    for index, message in enumerate(file.message_type):
        yield from _message(message, (_MESSAGE, index), message.name, known)
    for index, enum in enumerate(file.enum_type):
        yield from _enum(enum, (_ENUM, index), enum.name, known)


def _service(service: ServiceDescriptorProto, path: Path_, known: Comments) -> Iterator[str]:
    yield f"### {service.name}"
    yield prose(known.get(path, ""))
    yield table(
        ("RPC", "request", "answer", "meaning"),
        (
            (
                code(rpc.name),
                ("stream of " if rpc.client_streaming else "") + _link(rpc.input_type),
                ("stream of " if rpc.server_streaming else "") + _link(rpc.output_type),
                cell(known.get((*path, _MEMBER, number), "")),
            )
            for number, rpc in enumerate(service.method)
        ),
    )


def _message(message: DescriptorProto, path: Path_, name: str, known: Comments) -> Iterator[str]:
    yield f"### {name}"
    yield prose(known.get(path, ""))
    maps = {m.name: m for m in message.nested_type if m.options.map_entry}
    if message.field:
        yield table(
            ("field", "number", "type", "meaning"),
            (
                (
                    code(field.name),
                    str(field.number),
                    _type(field, maps),
                    cell(known.get((*path, _FIELD, number), "")),
                )
                for number, field in enumerate(message.field)
            ),
        )
    for index, nested in enumerate(message.nested_type):
        if nested.name not in maps:
            place = (*path, _NESTED_MESSAGE, index)
            yield from _message(nested, place, f"{name}.{nested.name}", known)
    for index, enum in enumerate(message.enum_type):
        yield from _enum(enum, (*path, _NESTED_ENUM, index), f"{name}.{enum.name}", known)


def _enum(enum: EnumDescriptorProto, path: Path_, name: str, known: Comments) -> Iterator[str]:
    yield f"### {name}"
    yield prose(known.get(path, ""))
    yield table(
        ("value", "number", "meaning"),
        (
            (code(value.name), str(value.number), cell(known.get((*path, _MEMBER, number), "")))
            for number, value in enumerate(enum.value)
        ),
    )


def _type(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = entry.field
        return f"map of {_scalar(key)} to {_scalar(value)}"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {_scalar(field)}"
    return ("optional " if field.proto3_optional else "") + _scalar(field)


def _scalar(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _link(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _link(type_name: str) -> str:
    name = type_name.removeprefix(PACKAGE)
    return f"[{name}](#{name.lower().replace('.', '')})"
