"""History files round-trip, and invalid ones are rejected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.history import (
    NO_PARTITION,
    HistoryError,
    HistoryWriter,
    LossMark,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    SendEnded,
    SendInvoked,
    read_history,
)
from tidelog.history.history_format import decode_operation, encode_operation, header_line

WRITERS = 3
WRITES = 200
WAIT_SECONDS = 30

OPERATIONS: list[Operation] = [
    SendInvoked(1, "p1", "sea", NO_PARTITION, 17),
    SendEnded(2, "p1", "sea", 0, 17, Outcome.OK, 5, 3, 1),
    SendEnded(2, "p1", "sea", 0, 18, Outcome.INFO),
    PollInvoked(3, "c1", "sea", 0, final=True),
    PollEnded(4, "c1", "sea", 0, Outcome.OK, [5, 6], [17, -1], [3, -1], True, 7, 3, True),
    PollEnded(4, "c1", "sea", 0, Outcome.FAIL, [], [], []),
    LossMark(5, "sea", 0, "unclean election", 0, 3, 4),
    LossMark(5, "sea", 0, "retention", 0, 3, 0, 4),
    ReplicaDigest(6, "sea", 0, 1, 0, 7, "a1b2"),
    Nemesis(7, "kill", "Weiß\n\udc80"),
    Nemesis(8, "heal"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.history"


def test_a_written_history_is_read_with_its_line_numbers(path: Path) -> None:
    with HistoryWriter(path) as history:
        history.write(OPERATIONS[0])
        history.write_all(OPERATIONS[1:])
    assert list(read_history(path)) == list(enumerate(OPERATIONS, 2))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_lines_of_a_send_are_short() -> None:
    invoked = b'{"k":"send","t":1,"tp":"sea","c":"p1","v":17}\n'
    assert encode_operation(OPERATIONS[0]) == invoked
    ended = b'{"k":"send","t":2,"tp":"sea","p":0,"c":"p1","v":17,"r":"ok","o":5,"e":3,"b":1}\n'
    assert encode_operation(OPERATIONS[1]) == ended


def test_a_writer_continues_where_another_ended(path: Path) -> None:
    for operation in OPERATIONS:
        with HistoryWriter(path) as history:
            history.write(operation)
    assert [operation for _, operation in read_history(path)] == OPERATIONS


WRITING_PROGRAM = """
import sys
from pathlib import Path
from tidelog.history import HistoryWriter, SendInvoked
path, writer, writes = sys.argv[1:]
with HistoryWriter(Path(path)) as history:
    for value in range(int(writes)):
        history.write(SendInvoked(value, f"p{writer}", "sea", 0, value))
"""


def test_processes_can_share_a_file(path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITING_PROGRAM, path, str(writer), str(WRITES)])
        for writer in range(WRITERS)
    ]
    assert [process.wait(WAIT_SECONDS) for process in processes] == [0] * WRITERS
    read = [operation for _, operation in read_history(path)]
    for writer in range(WRITERS):
        own = [one for one in read if isinstance(one, SendInvoked) and one.client == f"p{writer}"]
        assert [one.value for one in own] == list(range(WRITES))


def test_a_short_write_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HistoryWriter(path) as history:
        monkeypatch.setattr(os, "write", lambda _, content: len(content) - 1)
        with pytest.raises(OSError, match="this history cannot be used"):
            history.write(OPERATIONS[0])


def test_no_history_begins_with_a_torn_header(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda _, content: len(content) - 1)
    with pytest.raises(OSError, match="this history cannot be used"):
        HistoryWriter(path)
    assert list(path.parent.iterdir()) == []


def test_reading_reports_its_progress(path: Path) -> None:
    with HistoryWriter(path) as history:
        for _ in range(30):
            history.write(Nemesis(0, "x" * 100_000))
    advanced: list[int] = []
    assert len(list(read_history(path, advanced.append))) == 30
    assert len(advanced) == 2
    assert sum(advanced) <= path.stat().st_size


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n", "line 1: no JSON"),
        (b'{"k":"send"}\n', "line 1: the first line of a history is"),
        (b'{"k":"tidelog-history","version":2}\n', "version 2; this program reads 1"),
        (header_line()[:-1], "line 1: the line has no end"),
        (header_line() + b'{"k":"nemesis","t":1,"what":"kill"}', "line 2: the line has no end"),
        (header_line() + b"\xff\n", "line 2: no JSON"),
        (header_line() + b"[" * 100_000 + b"\n", "line 2: no JSON"),
        (header_line() + b"7\n", "line 2: no JSON object"),
        (header_line() + b"{}{}\n", "line 2: no JSON object that takes the whole line"),
    ],
)
def test_an_invalid_history_is_rejected(path: Path, content: bytes, complaint: str) -> None:
    path.write_bytes(content)
    with pytest.raises(HistoryError) as caught:
        list(read_history(path))
    assert str(caught.value).startswith(str(path))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"k":"dance","t":1}', "kind (k) is 'dance'; known are send, poll"),
        ('{"k":["send"],"t":1}', "kind (k) is ['send']"),
        ('{"k":"nemesis","t":-1,"what":"x"}', "t is -1; it is a whole number from 0"),
        ('{"k":"nemesis","t":1.5,"what":"x"}', "t is 1.5"),
        ('{"k":"nemesis","t":true,"what":"x"}', "t is True"),
        ('{"k":"nemesis","t":99999999999999999999,"what":"x"}', "t is 9999"),
        ('{"k":"nemesis","t":1}', "what is None; it is text"),
        ('{"k":"send","t":1,"tp":"sea","c":"p","v":1,"r":"ok"}', "names its partition (p)"),
        ('{"k":"send","t":1,"tp":"sea","c":"p","v":1,"r":"done"}', "r is 'done'; known are ok"),
        ('{"k":"send","t":1,"tp":"sea","c":"p","v":"x"}', "v is 'x'"),
        ('{"k":"poll","t":1,"tp":"sea","p":0,"c":"c","r":"ok","os":3}', "os is 3; it is a list"),
        (
            '{"k":"poll","t":1,"tp":"sea","p":0,"c":"c","r":"ok","os":[1],"vs":[1],"es":[]}',
            "1 offsets (os), 1 values (vs) and 0 leader epochs (es); they are as many",
        ),
        (
            '{"k":"poll","t":1,"tp":"sea","p":0,"c":"c","r":"ok","os":[-1],"vs":[1],"es":[1]}',
            "os holds whole numbers from 0",
        ),
        (
            '{"k":"poll","t":1,"tp":"sea","p":0,"c":"c","r":"info","os":[1],"vs":[1],"es":[1]}',
            "a poll that ended as info gave no records",
        ),
        ('{"k":"poll","t":1,"tp":"sea","p":0,"c":"c","fin":2}', "fin is 2; it is 1 or missing"),
        ('{"k":"mark","t":1,"tp":"sea","p":0,"why":"","e0":0,"e1":1}', "a mark names its reason"),
    ],
)
def test_an_invalid_field_is_named(line: str, complaint: str) -> None:
    with pytest.raises(HistoryError) as caught:
        decode_operation(line.encode() + b"\n")
    assert complaint in str(caught.value)
