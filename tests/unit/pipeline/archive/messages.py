"""Protobuf messages as `protoc` describes them."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto


def _descriptors() -> bytes:
    """message Tide { int64 id; optional string name; repeated Depth depths; uint64 large;
    Wind wind; map<string, int64> by_day; } message Depth { double metres; }"""
    file = descriptor_pb2.FileDescriptorSet().file.add(
        name="tide.proto", package="sea.v1", syntax="proto3"
    )
    of = FieldDescriptorProto
    wind = file.enum_type.add(name="Wind")
    wind.value.add(name="CALM", number=0)
    wind.value.add(name="STORM", number=1)
    file.message_type.add(name="Depth").field.add(
        name="metres", number=1, type=of.TYPE_DOUBLE, label=of.LABEL_OPTIONAL
    )
    tide = file.message_type.add(name="Tide")
    once, many = of.LABEL_OPTIONAL, of.LABEL_REPEATED
    tide.field.add(name="id", number=1, type=of.TYPE_INT64, label=once)
    tide.oneof_decl.add(name="_name")
    tide.field.add(
        name="name", number=2, type=of.TYPE_STRING, label=once, oneof_index=0, proto3_optional=True
    )
    tide.field.add(
        name="depths", number=3, type=of.TYPE_MESSAGE, label=many, type_name=".sea.v1.Depth"
    )
    tide.field.add(name="large", number=4, type=of.TYPE_UINT64, label=once)
    tide.field.add(name="wind", number=5, type=of.TYPE_ENUM, label=once, type_name=".sea.v1.Wind")
    entry = tide.nested_type.add(name="ByDayEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=of.TYPE_STRING, label=once)
    entry.field.add(name="value", number=2, type=of.TYPE_INT64, label=once)
    tide.field.add(
        name="by_day",
        number=6,
        type=of.TYPE_MESSAGE,
        label=many,
        type_name=".sea.v1.Tide.ByDayEntry",
    )
    file.message_type.add(name="Calm")
    marks = file.message_type.add(name="Marks")
    marks.field.add(
        name="calm", number=1, type=of.TYPE_MESSAGE, label=many, type_name=".sea.v1.Calm"
    )
    node = file.message_type.add(name="Node")
    node.field.add(
        name="next", number=1, type=of.TYPE_MESSAGE, label=once, type_name=".sea.v1.Node"
    )
    found = descriptor_pb2.FileDescriptorSet()
    found.file.add().CopyFrom(file)
    return found.SerializeToString()


DESCRIPTORS = _descriptors()
