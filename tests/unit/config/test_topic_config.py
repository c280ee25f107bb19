"""What a topic's configuration may hold."""

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
def test_the_largest_number_of_64_bits_is_taken(key: str) -> None:
    assert TopicConfig.parse({key: str(2**63 - 1)}).as_text()[key] == str(2**63 - 1)
