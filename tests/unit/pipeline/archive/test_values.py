from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.core import json_values, protobuf_values
from tidelog_pipeline.archive.core.value_format import (
    ValueFormat,
    check_samples,
    effective_format,
    format_from_json,
    format_to_json,
)
from unit.pipeline.archive.messages import DESCRIPTORS

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("is_calm", BooleanType()),
        StructField("depths", ArrayType(DoubleType())),
        StructField("by_day", MapType(StringType(), LongType())),
        StructField("at", StructType([StructField("x", DoubleType())])),
    ]
)


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"id": 1, "name": "calm", "is_calm": true, "depths": [1, 2.5, null]}',
        b'{"id": null, "by_day": {"mon": 1}, "at": {"x": 1}, "more": 3}',
        b'{"name": {"strings": "take anything"}}',
    ],
)
def test_a_value_of_the_schema_fits(value: bytes) -> None:
    assert json_values.mismatch(value, SCHEMA) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xff", "it is not JSON"),
        (b"[1]", "it is an array, and not an object"),
        (b'{"ID": 1}', "it has the fields ID, and none of id, name"),
        (b'{"id": "1"}', "field id is a string, and bigint in the schema"),
        (b'{"id": 1.5}', "field id is a number, and bigint in the schema"),
        (b'{"id": true}', "field id is a boolean"),
        (b'{"depths": [[1]]}', "field depths[] is an array"),
        (b'{"by_day": {"mon": "x"}}', "field by_day{} is a string"),
        (b'{"at": {"x": "deep"}}', "field at.x is a string"),
    ],
)
def test_a_value_that_does_not_match_is_reported_by_its_field(value: bytes, expected: str) -> None:
    assert expected in json_values.mismatch(value, SCHEMA)


def test_messages_become_rows_of_their_schema() -> None:
    of = protobuf_values.message_class(DESCRIPTORS, "sea.v1.Tide")
    assert protobuf_values.schema_of(of.DESCRIPTOR).simpleString() == (
        "struct<id:bigint,name:string,depths:array<struct<metres:double>>,"
        "large:decimal(20,0),wind:string,by_day:map<string,bigint>>"
    )
    value = of(
        id=1, depths=[{"metres": 2.5}], large=2**64 - 1, wind=1, by_day={"mon": 3}
    ).SerializeToString()
    message = protobuf_values.parse(of, value)
    assert message is not None
    assert protobuf_values.row_of(message) == (
        1,
        None,
        [(2.5,)],
        Decimal(2**64 - 1),
        "STORM",
        {"mon": 3},
    )


def test_foreign_bytes_are_not_a_message() -> None:
    """Bytes of another message are often well formed, with other field numbers."""
    of = protobuf_values.message_class(DESCRIPTORS, "sea.v1.Depth")
    tide = protobuf_values.message_class(DESCRIPTORS, "sea.v1.Tide")
    assert protobuf_values.parse(of, b"\xff") is None
    other = tide(large=4).SerializeToString()
    assert protobuf_values.parse(of, other) is None
    assert protobuf_values.mismatch(of, other) == ("it has fields with unknown numbers: 4")
    assert "not a protobuf message" in protobuf_values.mismatch(of, b"\xff")


@pytest.mark.parametrize(
    ("descriptors", "message", "expected"),
    [
        (DESCRIPTORS, "sea.v1.Tides", "did you mean sea.v1.Tide?"),
        (DESCRIPTORS, "Xyz", "there are sea.v1.Calm"),
        (DESCRIPTORS, "sea.v1.Node", "contains sea.v1.Node within itself"),
        (DESCRIPTORS, "sea.v1.Calm", "message sea.v1.Calm is without fields, and"),
        (DESCRIPTORS, "sea.v1.Marks", "message sea.v1.Marks is without fields: calm has none"),
        (b"no descriptors", "Tide", "protoc --include_imports"),
    ],
)
def test_unsuitable_descriptors_are_reported(
    descriptors: bytes, message: str, expected: str
) -> None:
    with pytest.raises(OptionError, match=r"--message|--descriptors|message") as error:
        ValueFormat.of_protobuf(descriptors, message)
    assert expected in error.value.message


def test_a_column_without_fields_is_rejected_before_anything_is_written() -> None:
    inner = StructType([StructField("b", MapType(StringType(), StructType([])))])
    with pytest.raises(OptionError, match=r"without fields: a\.b has none"):
        ValueFormat.of_json(StructType([StructField("a", inner)]))


FORMS = [
    ValueFormat(),
    ValueFormat.of_json(SCHEMA, keep_raw=True),
    ValueFormat.of_protobuf(DESCRIPTORS, "sea.v1.Tide"),
]


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_keeps_its_form(form: ValueFormat) -> None:
    kept = format_from_json(format_to_json(form), "form.json")
    assert kept == form
    assert effective_format(None, kept) == form
    assert effective_format(form, kept) == form


def test_another_form_is_rejected() -> None:
    with pytest.raises(OptionError, match="the archive has raw values, and not json values of"):
        effective_format(FORMS[1], FORMS[0])


@pytest.mark.parametrize("value", [b'""', b"false", b"[]", b"{}"])
def test_an_empty_value_of_another_type_in_a_map_does_not_match(value: bytes) -> None:
    form = ValueFormat.of_json(StructType([StructField("days", MapType(StringType(), LongType()))]))
    with pytest.raises(OptionError, match=r"field days\{\} is"):
        check_samples(form, [("sea/0 offset 7", b'{"days": {"monday": ' + value + b"}}")])
    check_samples(form, [("sea/0 offset 7", b'{"days": {"monday": null, "friday": 0}}')])


@pytest.mark.rule("archive-values-converted-or-kept")
def test_a_schema_that_matches_no_value_is_reported_with_the_first_mismatch() -> None:
    samples = [("sea/0 offset 7", b'{"id": "x"}'), ("sea/0 offset 8", b"{")]
    with pytest.raises(OptionError, match=r"none of 2 .* at sea/0 offset 7: field id is a string"):
        check_samples(FORMS[1], samples)
    check_samples(FORMS[1], [*samples, ("sea/0 offset 9", b'{"id": 1}')])
    check_samples(FORMS[1], [])
    check_samples(FORMS[0], samples)
