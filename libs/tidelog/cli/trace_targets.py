"""Parses partitions and start times on the command line. Pure functions."""

from __future__ import annotations

from tidelog.cli.exit_status import UsageError
from tidelog.cli.positions import parse_moment
from tidelog.errors import TidelogError
from tidelog.model import MAX_INT32
from tidelog.request_bounds import check_topic_name
from tidelog.state_changes.tracing import TraceScope


def parse_target(text: str) -> TraceScope:
    """Parses TOPIC or TOPIC/PARTITION. Raises `UsageError`.

    >>> parse_target("sea/3")
    TraceScope(topic='sea', partition=3, since_ms=0)
    >>> parse_target("sea").partition
    """
    topic, slash, number = text.partition("/")
    if not topic or (slash and not (number.isascii() and number.isdecimal())):
        raise UsageError(f"{text!r} is neither TOPIC nor TOPIC/PARTITION, as sea or sea/3")
    # A shell may pass arbitrary bytes.
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise UsageError(f"topic {topic!r} is no text in UTF-8; correct its characters") from None
    # Checked here because a rejection by a service would look like a missing answer.
    try:
        check_topic_name(topic)
    except TidelogError as error:
        raise UsageError(error.message) from None
    return TraceScope(topic, parse_number(number, "partition") if slash else None)


def parse_number(digits: str, of: str) -> int:
    """Parses the number of a partition or a broker. Raises `UsageError`."""
    if len(digits) > len(str(MAX_INT32)) or int(digits) > MAX_INT32:
        raise UsageError(f"{of} {digits}: no {of} has a higher number than {MAX_INT32}")
    return int(digits)


def parse_since(text: str, now_ms: int) -> int:
    """Returns milliseconds since 1970. A time without a zone is local time. Raises `UsageError`.

    >>> parse_since("10m", now_ms=1_000_000), parse_since("1970-01-01T00:00:02Z", now_ms=0)
    (400000, 2000)
    """
    try:
        return parse_moment(text, now_ms)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None
