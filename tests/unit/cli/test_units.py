"""Durations and sizes of options, settings and tables."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import units
from tidelog.units import (
    MAX_NUMBER,
    format_duration_ms,
    format_setting,
    format_size_bytes,
    parse_duration_ms,
    parse_setting,
    parse_size_bytes,
    setting_argument,
)

NUMBERS = st.integers(0, MAX_NUMBER)


def test_examples_in_docstrings_hold() -> None:
    tried = doctest.testmod(units)
    assert tried.attempted
    assert not tried.failed


@given(NUMBERS)
def test_a_shown_duration_parses_to_the_same_number(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration_ms(duration_ms)) == duration_ms


@given(NUMBERS | st.integers(0, 10**6).map(lambda n: n << 20))
def test_a_shown_size_parses_to_the_same_number(size_bytes: int) -> None:
    assert parse_size_bytes(format_size_bytes(size_bytes)) == size_bytes


@given(
    st.sampled_from(["retention_ms", "retention_bytes", "recovery"]), st.text() | NUMBERS.map(str)
)
def test_a_shown_setting_parses_to_the_same_text(key: str, stored: str) -> None:
    shown = format_setting(key, stored)
    if shown != stored:
        assert parse_setting(key, shown) == stored
        argument = setting_argument(key, stored).removeprefix(f"{key}=")
        assert parse_setting(key, argument) == stored


@given(st.text())
def test_any_text_is_a_number_or_an_error_with_the_valid_forms(text: str) -> None:
    for parse in (parse_duration_ms, parse_size_bytes):
        try:
            assert 0 <= parse(text) <= MAX_NUMBER
        except ValueError as error:
            assert "give" in str(error)  # noqa: PT017 - not every text is an error


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("500ms", 500),
        ("10 s", 10_000),
        ("10m", 600_000),
        ("10min", 600_000),
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("1 h 30 min 5 ms", 5_400_005),
        (" 0.5h ", 1_800_000),
    ],
)
def test_a_duration_is_parsed(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", "d", "7x", "7 weeks", "-5m", "1e3", "nan", "30m1h", "1h1h", "1m1min", "5s x", "x5s", "7D"],
)
def test_other_durations_are_rejected_with_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; give one as 500ms, 10s"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512B", 512),
        ("64KiB", 65_536),
        ("64kib", 65_536),
        ("1.5 GiB", 3 << 29),
        ("50MB", 50_000_000),
    ],
)
def test_a_size_is_parsed(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "B", "-1", "5 bytes", "1e3", "1,000", "9" * 20])
def test_other_sizes_are_rejected_with_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; give one as 512B, 64KiB"):
        parse_size_bytes(text)


@pytest.mark.parametrize(("text", "decimal"), [("64k", "kB"), ("64M", "MB"), ("1 g", "GB")])
def test_an_ambiguous_size_is_rejected_with_both_meanings(text: str, decimal: str) -> None:
    with pytest.raises(
        ValueError, match=f"{decimal} for a power of 1,000, .iB for a power of 1,024"
    ):
        parse_size_bytes(text)


@pytest.mark.parametrize("parse", [parse_duration_ms, parse_size_bytes])
def test_a_part_of_a_unit_is_rejected(parse: object) -> None:
    with pytest.raises(ValueError, match="is not an integer number of"):
        parse("1.5")  # type: ignore[operator]


def test_a_number_beyond_64_bits_is_rejected() -> None:
    with pytest.raises(ValueError, match="too large; give at most 9223372036854775807"):
        parse_duration_ms("9999999999999d")


@pytest.mark.parametrize(
    ("key", "text", "sent"),
    [
        ("retention_ms", "-1", "-1"),
        ("retention_ms", "Unlimited", "-1"),
        ("max_batch_bytes", "1MiB", "1048576"),
        ("max_batch_records", "1MiB", "1MiB"),
        ("timestamp_type", "append", "append"),
        ("segment_ms", "007", "007"),
    ],
)
def test_a_setting_is_sent_as_the_cluster_takes_it(key: str, text: str, sent: str) -> None:
    assert parse_setting(key, text) == sent


@pytest.mark.parametrize("stored", ["", "007", "-7", "9" * 400, "null"])
def test_an_unusual_stored_setting_is_shown_as_it_is(stored: str) -> None:
    assert format_setting("retention_ms", stored) == stored
