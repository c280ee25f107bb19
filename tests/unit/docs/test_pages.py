"""Overviews and decision records are short, links resolve, and console blocks are executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documented import (
    BACKUP,
    CHANGING,
    KAFKA_CLIENTS,
    LOCAL,
    README,
    REST,
    ROOT,
    SPARK_JOBS,
    TOUR,
    UPGRADES,
    anchor,
    blocks,
    pages,
    read,
    shown_lines,
)

MAX_README_LINES = 150
MAX_OVERVIEW_LINES = 400
RECORD_LINES = range(20, 41)
# Of prose: a row of a table is one line.
MAX_RECORD_LINE_WIDTH = 120
INTERNALS = ROOT / "docs" / "internals"
RECORDS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(text)}


def broken_links(page: Path, text: str) -> list[str]:
    """Links to files that are not there, or to headings that the linked page does not have."""
    broken = []
    for link in LINK.findall(text):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (fragment and fragment not in anchors(target.read_text())):
            broken.append(link)
    return broken


def test_the_readme_is_short() -> None:
    assert len(read(README).splitlines()) <= MAX_README_LINES


def test_the_overview_is_short() -> None:
    assert len(read("ARCHITECTURE.md").splitlines()) <= MAX_OVERVIEW_LINES


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_a_decision_record_is_short_and_complete(record: Path) -> None:
    lines = record.read_text().splitlines()
    assert len(lines) in RECORD_LINES
    assert [i for i in lines if len(i) > MAX_RECORD_LINE_WIDTH and not i.startswith("|")] == []
    sections = [line for line in lines if line.startswith("## ")]
    assert sections == ["## Context", "## Decision", "## Alternatives", "## Consequences"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Tides\n[right](#tides) [no heading](#ebb) [no page](flood.md)\n")
    assert broken_links(page, page.read_text()) == ["#ebb", "flood.md"]


def test_every_console_block_is_executed() -> None:
    with_blocks = {str(p.relative_to(ROOT)) for p in pages() if blocks("console", p.read_text())}
    assert with_blocks == {*TOUR, SPARK_JOBS, CHANGING, BACKUP, UPGRADES, LOCAL, REST}


def test_blocks_are_found_in_lists_and_behind_the_end_of_another_one() -> None:
    text = (
        "```console\n$ a\n```\n\ntext\n\n1. b:\n\n   ```\n   c \\\n      d\n   ```\n```py\ne\n```\n"
    )
    assert blocks("", text) == ["c \\\n   d\n"]
    assert blocks("console", text) == ["$ a\n"]
    assert shown_lines(text) == ["a", "c d"]


def test_programs_for_other_clients_compile() -> None:
    with_blocks = {str(p.relative_to(ROOT)) for p in pages() if blocks("py", p.read_text())}
    assert with_blocks == {KAFKA_CLIENTS}
    for program in blocks("py", read(KAFKA_CLIENTS)):
        compile(program, KAFKA_CLIENTS, "exec")


@pytest.mark.parametrize("client", ["kafka", "confluent_kafka", "aiokafka"])
def test_each_kafka_client_has_programs_that_write_and_read(client: str) -> None:
    programs = [code for code in blocks("py", read(KAFKA_CLIENTS)) if f"from {client}" in code]
    for kind in ("Producer(", "Consumer("):
        assert any(kind in program for program in programs)


def test_the_map_names_every_page() -> None:
    """Except internals and decision records, which have lists of their own."""
    index = ROOT / "docs" / "index.md"
    links = [link.partition("#")[0] for link in LINK.findall(index.read_text())]
    linked = {(index.parent / link).resolve() for link in links}
    listed_elsewhere = {INTERNALS, ROOT / "docs" / "adr"}
    unnamed = {p for p in pages() if p.parent not in listed_elsewhere} - linked - {index}
    assert unnamed == set()


def test_the_overview_links_to_every_internals_page() -> None:
    overview = (ROOT / "ARCHITECTURE.md").read_text()
    links = re.findall(r"\]\((docs/internals/[^)#]+)", overview)
    assert len(links) >= 10
    missing = {f"docs/internals/{p.name}" for p in INTERNALS.glob("*.md")} - set(links)
    assert missing == set()


def test_every_decision_record_is_listed() -> None:
    adr = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (adr / "README.md").read_text())
    assert listed == [record.name for record in RECORDS]


def test_a_broken_link_to_another_page_would_be_found() -> None:
    page = INTERNALS / "protocol.md"
    planted = "[a](protocol.md#3-replication) [b](#9-votes) [c](votes.md) [d](gaps.md#votes)"
    assert broken_links(page, planted) == ["#9-votes", "votes.md", "gaps.md#votes"]
