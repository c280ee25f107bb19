"""Errors of Python and protobuf that mean that the process may not use more memory."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from tidelog import batch_layout
from tidelog.errors import ErrorCode, TidelogError
from tidelog.memory_shortage import is_memory_shortage
from tidelog.rpc.message_bounds import PRODUCE, Rejected, bounded_deserializer

WITHOUT_MEMORY = DecodeError("Error parsing message with type 'odd': Arena alloc failed")
MALFORMED = DecodeError("Error parsing message with type 'odd': Wire format was corrupt")

_PARSES_WITHOUT_MEMORY = """
import resource
from pathlib import Path
from tidelog.memory_shortage import is_memory_shortage
from tidelog.v1 import admin_pb2

data = admin_pb2.CreateTopicRequest(topic="x" * (64 << 20)).SerializeToString()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, used))
try:
    admin_pb2.CreateTopicRequest.FromString(data)
except Exception as error:
    print(is_memory_shortage(error), error)
"""


def test_protobuf_that_cannot_allocate_is_a_shortage_of_memory() -> None:
    parsing = subprocess.run(
        [sys.executable, "-c", _PARSES_WITHOUT_MEMORY],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert parsing.stdout.startswith("True"), (parsing.stdout, parsing.stderr)


def test_a_malformed_message_is_no_shortage_of_memory() -> None:
    assert is_memory_shortage(WITHOUT_MEMORY)
    assert not is_memory_shortage(MALFORMED)


@pytest.mark.parametrize("error", [WITHOUT_MEMORY, MemoryError()])
def test_a_client_is_not_blamed_for_a_request_that_cannot_be_parsed_without_memory(
    error: Exception,
) -> None:
    def parse(_: bytes) -> Any:
        raise error

    rejected = bounded_deserializer(PRODUCE, parse, None)(b"valid")
    assert isinstance(rejected, Rejected)
    assert rejected.error.code is ErrorCode.INTERNAL
    assert "the process may not use more memory" in str(rejected.error)


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (WITHOUT_MEMORY, MemoryError, "Arena alloc failed"),
        (MALFORMED, TidelogError, "the 9 bytes are no RecordBatch message"),
    ],
)
def test_a_batch_that_cannot_be_parsed_without_memory_is_not_invalid(
    error: Exception,
    raised: type[Exception],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse(_: bytes) -> Any:
        raise error

    messages = SimpleNamespace(RecordBatch=SimpleNamespace(FromString=parse))
    monkeypatch.setattr(batch_layout, "record_batch_pb2", messages)
    with pytest.raises(raised, match=words):
        batch_layout.parse(b"valid", 9)
