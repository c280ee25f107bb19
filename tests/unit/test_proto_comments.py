"""The comments of `proto/` are the reference documentation of the wire API, so every declaration
needs one.

Generated code carries no source information, so the test gets it from the compiler.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

PROTO_ROOT = Path(__file__).parents[2] / "proto"

# The position of a declaration in its file: field numbers and indexes alternate.
SourcePath: TypeAlias = tuple[int, ...]

_MESSAGES = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_ENUMS = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_SERVICES = FileDescriptorProto.SERVICE_FIELD_NUMBER
_NESTED_MESSAGES = DescriptorProto.NESTED_TYPE_FIELD_NUMBER
_NESTED_ENUMS = DescriptorProto.ENUM_TYPE_FIELD_NUMBER
# The field numbers of enum values and of the RPCs in a service.
_MEMBERS = 2

UNDOCUMENTED = """
syntax = "proto3";
package undocumented;

message Message {
  message Nested {}
  enum NestedEnum { NESTED_ENUM_UNSPECIFIED = 0; }
  map<string, string> map = 1;
}
enum Enum { ENUM_UNSPECIFIED = 0; }
service Service { rpc Call(Message) returns (Message); }

// Documented.
message Documented {}
"""


def test_every_message_enum_value_service_and_rpc_has_a_comment(tmp_path: Path) -> None:
    protos = sorted(PROTO_ROOT.rglob("*.proto"))
    assert protos
    assert list(undocumented(PROTO_ROOT, protos, tmp_path)) == []


def test_a_missing_comment_is_found_at_every_kind_of_declaration(tmp_path: Path) -> None:
    proto = tmp_path / "undocumented.proto"
    proto.write_text(UNDOCUMENTED)
    assert list(undocumented(tmp_path, [proto], tmp_path)) == [
        "undocumented.proto: Message",
        "undocumented.proto: Message.Nested",
        "undocumented.proto: Message.NestedEnum",
        "undocumented.proto: Message.NestedEnum.NESTED_ENUM_UNSPECIFIED",
        "undocumented.proto: Enum",
        "undocumented.proto: Enum.ENUM_UNSPECIFIED",
        "undocumented.proto: Service",
        "undocumented.proto: Service.Call",
    ]


def undocumented(root: Path, protos: Iterable[Path], tmp_path: Path) -> Iterator[str]:
    """The declarations without a comment right above."""
    for file in compiled(root, protos, tmp_path).file:
        commented = {
            tuple(location.path)
            for location in file.source_code_info.location
            if location.leading_comments.strip()
        }
        for path, name in declarations(file):
            if path not in commented:
                yield f"{file.name}: {name}"


def compiled(root: Path, protos: Iterable[Path], tmp_path: Path) -> FileDescriptorSet:
    output = tmp_path / "descriptors.pb"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={root}",
            f"--descriptor_set_out={output}",
            "--include_source_info",
            *map(str, protos),
        ],
        check=True,
    )
    return FileDescriptorSet.FromString(output.read_bytes())


def declarations(file: FileDescriptorProto) -> Iterator[tuple[SourcePath, str]]:
    for index, message in enumerate(file.message_type):
        yield from _in_message(message, (_MESSAGES, index), message.name)
    for index, enum in enumerate(file.enum_type):
        yield from _in_enum(enum, (_ENUMS, index), enum.name)
    for index, service in enumerate(file.service):
        path = (_SERVICES, index)
        yield path, service.name
        for number, rpc in enumerate(service.method):
            yield (*path, _MEMBERS, number), f"{service.name}.{rpc.name}"


def _in_message(
    message: DescriptorProto, path: SourcePath, name: str
) -> Iterator[tuple[SourcePath, str]]:
    yield path, name
    for index, nested in enumerate(message.nested_type):
        # The compiler creates a message for each map field.
        if not nested.options.map_entry:
            yield from _in_message(
                nested, (*path, _NESTED_MESSAGES, index), f"{name}.{nested.name}"
            )
    for index, enum in enumerate(message.enum_type):
        yield from _in_enum(enum, (*path, _NESTED_ENUMS, index), f"{name}.{enum.name}")


def _in_enum(
    enum: EnumDescriptorProto, path: SourcePath, name: str
) -> Iterator[tuple[SourcePath, str]]:
    yield path, name
    for index, value in enumerate(enum.value):
        yield (*path, _MEMBERS, index), f"{name}.{value.name}"
