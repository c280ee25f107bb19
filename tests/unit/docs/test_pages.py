"""The README is short, links between pages resolve, and console blocks are executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documented import README, ROOT, SPARK_JOBS, TOUR, blocks, pages, read

MAX_README_LINES = 150
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub derives from headings."""
    headings: list[str] = HEADING.findall(text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


def test_the_readme_is_short() -> None:
    assert len(read(README).splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Tides\n[right](#tides) [no heading](#ebb) [no page](flood.md)\n")
    assert broken_links(page) == ["#ebb", "flood.md"]


def test_every_console_block_is_executed() -> None:
    with_blocks = {str(p.relative_to(ROOT)) for p in pages() if blocks("console", p.read_text())}
    assert with_blocks == {*TOUR, SPARK_JOBS}


def test_the_map_names_every_page() -> None:
    """Except internals and decision records, which have lists of their own."""
    index = ROOT / "docs" / "index.md"
    links = [link.partition("#")[0] for link in LINK.findall(index.read_text())]
    linked = {(index.parent / link).resolve() for link in links}
    listed_elsewhere = {ROOT / "docs" / "internals", ROOT / "docs" / "adr"}
    unnamed = {p for p in pages() if p.parent not in listed_elsewhere} - linked - {index}
    assert unnamed == set()
