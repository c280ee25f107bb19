"""The README is short, links between pages resolve, and console blocks are executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documented import README, ROOT, SPARK_JOBS, TOUR, anchor, blocks, pages, read

MAX_README_LINES = 150
INTERNALS = ROOT / "docs" / "internals"
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


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Tides\n[right](#tides) [no heading](#ebb) [no page](flood.md)\n")
    assert broken_links(page, page.read_text()) == ["#ebb", "flood.md"]


def test_every_console_block_is_executed() -> None:
    with_blocks = {str(p.relative_to(ROOT)) for p in pages() if blocks("console", p.read_text())}
    assert with_blocks == {*TOUR, SPARK_JOBS}


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
    assert listed == sorted(p.name for p in adr.glob("[0-9]*.md"))


def test_a_broken_link_to_another_page_would_be_found() -> None:
    page = INTERNALS / "protocol.md"
    planted = "[a](protocol.md#3-replication) [b](#9-votes) [c](votes.md) [d](gaps.md#votes)"
    assert broken_links(page, planted) == ["#9-votes", "votes.md", "gaps.md#votes"]
