"""Valid values of a topic's configuration."""

import pytest

from tidelog.errors import InvalidConfigError
from tidelog_runtime.topic_config import TopicConfig

NUMBERS = [
    key
    for key, value in TopicConfig().model_dump().items()
    if isinstance(value, int) and not isinstance(value, bool)
]


@pytest.mark.parametrize("key", NUMBERS)
def test_every_number_fits_64_bits(key: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{key}=.*less than or equal to"):
        TopicConfig.parse({key: str(2**63)})


@pytest.mark.parametrize("key", ["retention_ms", "segment_ms", "timestamp_max_ahead_ms"])
def test_the_largest_64_bit_number_is_accepted(key: str) -> None:
    assert TopicConfig.parse({key: str(2**63 - 1)}).as_text()[key] == str(2**63 - 1)


@pytest.mark.parametrize("number", ["9" * 19, "1" + 30 * "0", "9" * 5_000])
def test_an_oversized_number_stored_by_a_previous_release_becomes_the_maximum(number: str) -> None:
    stored = TopicConfig.parse_stored({"retention_ms": number})
    assert stored == TopicConfig.parse({"retention_ms": str(2**63 - 1)})


@pytest.mark.parametrize("number", ["-1", "0", "604800000"])
def test_other_stored_numbers_are_unchanged(number: str) -> None:
    stored = TopicConfig.parse_stored({"retention_ms": number})
    assert stored == TopicConfig.parse({"retention_ms": number})
