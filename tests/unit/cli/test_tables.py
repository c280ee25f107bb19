"""Tables for people: values that are copied or compared are never broken, however narrow the
terminal is."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog.cli
from tidelog.cli.output import COLUMN_GAP, PROSE_WORDS, table_lines

ADDRESS = "broker-17.internal.eu-central-1.example.com:7517"
TOPIC = "warehouse.inventory-changes.by-region_" + "x" * 60
OPERATION = "op-2026-11-26-rebalance-after-rack-eu-1b-returned"
REASON = (
    "1 replica would be in sync where min_insync_replicas is 2, and acks=all be rejected; start "
    "broker 2 first"
)
# Rows as commands show them, with realistic long values.
TABLES: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
    "brokers list": (
        (
            *("broker", "status", "address", "rack", "replicas", "leaders", "preferred"),
            *("out of sync", "moves in", "moves out"),
        ),
        [
            (1, "running, maintenance, removed", ADDRESS, "eu-central-1a", 120_000, 3, 2, 0, 0, 0),
            (22, "gone", "[2001:db8:85a3::8a2e:370:7334]:17502", "-", 6, 0, 2, 6, 0, 0),
        ],
    ),
    "cluster describe": (
        ("broker", "status", "address", "rack", "leaders", "replicas", "broker epoch"),
        [(1, "running", ADDRESS, "eu-central-1a", 4_000, 12_000, 2**40)],
    ),
    "topics list": (
        ("topic", "partitions", "replication", "health"),
        [(TOPIC, 100_000, 3, "12 without leader, 40 below min ISR, 400 under-replicated")],
    ),
    "operations list": (
        ("operation", "kind", "state", "moves", "requested by"),
        [(OPERATION, "set_replication_factor", "cancelling", "12 of 4,000", "console of anna")],
    ),
    "brokers check-restart": (("partition", "effect", "reason"), [(f"{TOPIC}/3", "last", REASON)]),
    "plan": (
        ("partition", "leader", "replicas", "then"),
        [(f"{TOPIC}/99999", 17, "17,18,19,20,21,22", "23,24,25,26,27,28")],
    ),
}
NARROW = (40, 60, 80, 100, 132)


# The characters of topic names, at full length, and those that addresses have besides.
NAMES = st.text("az09._-:[]/,", min_size=1, max_size=200)
# Names from elsewhere, such as racks and callers. Some characters take two cells.
FREE_NAMES = st.lists(st.text("aß潮位é", min_size=1), min_size=1, max_size=PROSE_WORDS - 1)
PROSE = st.lists(NAMES, min_size=PROSE_WORDS, max_size=8)
CELLS = st.one_of(
    NAMES, FREE_NAMES.map(" ".join), PROSE.map(" ".join), st.integers(0, 2**63), st.just("-")
)


@st.composite
def any_table(draw: st.DrawFn) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    columns = draw(st.sampled_from([columns for columns, _ in TABLES.values()]))
    return columns, draw(st.lists(st.tuples(*[CELLS] * len(columns)), max_size=3))


def plain(lines: list[str]) -> list[str]:
    """The text without colours."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def prose(cell: object) -> bool:
    return len(str(cell).split()) >= PROSE_WORDS


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("name", TABLES)
def test_identifiers_are_not_wrapped(name: str, width: int) -> None:
    assert_unbroken(*TABLES[name], width)


# Covers every command, as `table_lines` makes all tables.
@given(any_table(), st.integers(20, 240))
def test_no_cell_of_any_table_is_broken_at_any_width(
    table: tuple[tuple[str, ...], list[tuple[Any, ...]]], width: int
) -> None:
    assert_unbroken(*table, width)


def assert_unbroken(columns: tuple[str, ...], rows: list[tuple[Any, ...]], width: int) -> None:
    lines = table_lines(columns, rows, on_terminal=True, width=width)
    pieces = plain(lines)
    for row in rows:
        for cell in row:
            words = str(cell).split() if prose(cell) else [str(cell)]
            for word in words:
                assert any(word in piece for piece in pieces), f"{word!r} is broken: {pieces}"


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("name", TABLES)
def test_only_a_cell_wider_than_the_line_overflows(name: str, width: int) -> None:
    columns, rows = TABLES[name]
    names = max(map(len, columns)) + COLUMN_GAP
    longest = names + max(len(str(cell)) for row in rows for cell in row)
    for line in plain(table_lines(columns, rows, on_terminal=True, width=width)):
        assert len(line) <= max(width, longest)


def test_a_table_that_does_not_fit_becomes_a_block_per_row() -> None:
    columns, rows = ("broker", "address"), [(1, ADDRESS), (12, ADDRESS)]
    assert len(table_lines(columns, rows, on_terminal=True, width=80)) == 3
    assert table_lines(columns, rows, on_terminal=True, width=40) == [
        "broker   1",
        f"address  {ADDRESS}",
        "",
        "broker   12",
        f"address  {ADDRESS}",
    ]


def test_a_pipe_gets_one_line_per_row() -> None:
    columns, rows = TABLES["brokers list"]
    assert len(table_lines(columns, rows, on_terminal=False, width=40)) == 1 + len(rows)


def test_an_empty_table_has_its_headings() -> None:
    for on_terminal in (True, False):
        lines = table_lines(("broker", "address"), [], on_terminal=on_terminal, width=5)
        assert plain(lines) == ["broker  address"]


def test_commands_use_no_other_tables() -> None:
    sources = sorted(Path(tidelog.cli.__file__).parent.rglob("*.py"))
    others = [p.name for p in sources if "rich.table" in p.read_text() and p.name != "output.py"]
    assert others == []
