"""`docs/internals/rules-and-tests.md` names modules and tests that exist, and the other pages of
`docs/internals` have every rule that the code cites."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (
    "services/broker/tidelog_broker",
    "services/controller/tidelog_controller",
    "services/pipeline/tidelog_pipeline",
    "libs/tidelog_runtime",
    "libs/tidelog",
)
INTERNALS = ROOT / "docs" / "internals"
TABLES = (INTERNALS / "rules-and-tests.md").read_text()
# The pages that have the rules.
PAGES = {
    f"docs/internals/{name}.md": (INTERNALS / f"{name}.md").read_text()
    for name in ("protocol", "log-format", "interleavings", "gaps")
}
PROTOCOL = "\n".join(PAGES.values())
INTERLEAVINGS = PAGES["docs/internals/interleavings.md"]
HEADER = ["rule", "module", "test"]
NOT_BUILT = "not built"


class Row(NamedTuple):
    rule: str
    modules: list[str]
    tests: list[str]
    says_not_built: bool


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows(text: str) -> Iterator[Row]:
    """Of every table; raises ValueError for one of another shape."""
    for line in text.splitlines():
        if not line.startswith("|") or set(line) <= set("|- "):
            continue
        row = cells(line)
        if len(row) != len(HEADER):
            raise ValueError(f"{len(row)} cells where {HEADER} are expected: {line}")
        if row == HEADER:
            continue
        rule, modules, tests = row
        yield Row(rule, quoted(modules), quoted(tests), tests.startswith(NOT_BUILT))


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def places_of(module: str) -> list[Path]:
    return [place for package in PACKAGES if (place := ROOT / package / module).is_file()]


@cache
def names_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name.removeprefix("test_")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def faults(row: Row) -> list[str]:
    if row.says_not_built:
        return [f"{row.rule}: not built, and names {row.modules}"] if row.modules else []
    found = [] if row.modules and row.tests else [f"{row.rule}: names no module or no test"]
    places = {module: places_of(module) for module in row.modules}
    found += [f"{row.rule}: {module} is at {at}" for module, at in places.items() if len(at) != 1]
    found += [f"{row.rule}: there is no {test}" for test in row.tests if not is_there(test)]
    return found


def is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in names_in(ROOT / "tests" / path)


def numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text, re.MULTILINE)]


def sources() -> Iterator[tuple[Path, str]]:
    for folder in ("libs", "services", "tests", "proto"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".proto", ".md", ".txt") and "_pb2" not in path.name:
                yield path.relative_to(ROOT), path.read_text()


ROWS = list(rows(TABLES))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule[:60])
def test_every_module_and_test_of_the_tables_is_there(row: Row) -> None:
    assert faults(row) == []


def test_every_numbered_rule_has_a_row() -> None:
    named = [row.rule for row in ROWS]
    interleavings = numbers(r"^## (\d+)\. ", INTERLEAVINGS)
    assert interleavings == list(range(1, 20))
    wanted = [
        f"{prefix}{n}" for prefix in "RG" for n in numbers(rf"\b{prefix}(\d+)[.*]* ", PROTOCOL)
    ]
    assert {"R4", "G21"} <= set(wanted)
    for rule in wanted:
        assert any(name.startswith(f"{rule}:") for name in named), rule
    section = TABLES.partition("## Where the interleavings are met")[2].partition("\n## ")[0]
    assert [int(row.rule.partition(":")[0]) for row in rows(section)] == interleavings


def unresolved(text: str) -> list[str]:
    """Citations in a source that no page of `docs` resolves. A citation may be broken over lines of
    a comment, or of a planted bug."""
    flat = re.sub(r"\s+(?:(?:#|//|\+|-)\s+)?", " ", text)
    found = [
        f"interleaving {number}"
        for number in numbers(r"[Ii]nterleavings? (\d+)", flat)
        if not 1 <= number <= 19
    ]
    for number, page in re.findall(r"[Ss]ection (\d+) of (docs/internals/[\w-]+\.md)", flat):
        if not re.search(rf"^## {number}\. ", PAGES.get(page, ""), re.MULTILINE):
            found.append(f"section {number} of {page}")
    for title, page in re.findall(r'"([^"]+)" in (docs/internals/[\w-]+\.md)', flat):
        if not re.search(rf"^##+ {re.escape(title)}$", PAGES.get(page, ""), re.MULTILINE):
            found.append(f'"{title}" in {page}')
    pages = re.findall(r"docs/\w+/[\w-]+\.md", flat)
    found += [page for page in pages if not (ROOT / page).is_file()]
    found += [
        f"docs/adr/{number}"
        for number in re.findall(r"docs/adr/(\d{4})", flat)
        if not list((ROOT / "docs" / "adr").glob(f"{number}-*.md"))
    ]
    found += [
        proposal
        for proposal in re.findall(r"\b(?:KIP|KAFKA)-\d+", flat)
        if not re.search(rf"\b{proposal}\b", PROTOCOL)
    ]
    return found


def test_every_rule_that_the_code_cites_is_in_the_internals() -> None:
    this = Path(__file__).relative_to(ROOT)
    assert {p: u for p, text in sources() if p != this and (u := unresolved(text))} == {}


def test_a_citation_without_its_rule_is_found() -> None:
    right = """
    (section 3 of
    # docs/internals/protocol.md; interleaving 19 of docs/internals/interleavings.md; "Damaged
    batches" in docs/internals/log-format.md; docs/adr/0001; KIP-101)
    """
    assert unresolved(right) == []
    wrong = (
        "section 6 of docs/internals/protocol.md",
        "section 3 of docs/internals/votes.md",
        "interleaving 20",
        '"Votes" in docs/internals/protocol.md',
        "docs/adr/9999",
        "KIP-9999",
    )
    for citation in wrong:
        assert unresolved(f"({citation})"), citation


def test_no_source_cites_a_page_that_is_not_here() -> None:
    """Rules are cited as "section 3 of docs/internals/protocol.md", or by interleaving or
    proposal; none of them is in the overview."""
    elsewhere = re.compile(
        r"known[-]gaps|docs[/]protocol|design('s)?,?\s+section\s+\d|[A]RCHITECTURE\.md\)|"
        r"(section|interleavings?) \d+\s+of[\s#]+[A]RCHITECTURE|[A]RCHITECTURE\.md,\s+section"
    )
    assert [str(path) for path, text in sources() if elsewhere.search(text)] == []


def test_what_is_not_there_is_found() -> None:
    planted = """
| rule | module | test |
| --- | --- | --- |
| 1: right | `partition/isr.py` | `unit/broker/partition/test_high_watermark.py::it_never_falls` |
| 2: module | `partition/vote.py` | `unit/broker/partition/test_high_watermark.py::it_never_falls` |
| 3: no test | `partition/isr.py` | `unit/broker/partition/test_isr.py::a_quorum_commits` |
| 4: no file | `partition/isr.py` | `unit/broker/test_quorum.py::a_quorum_commits` |
| 5: nothing | | |
| 6: twice | `config.py` | `unit/broker/partition/test_high_watermark.py::it_never_falls` |
| 7: built | `partition/isr.py` | not built |
| 8: later | | not built: comes with reassignment |
"""
    assert [bool(faults(row)) for row in rows(planted)] == [False, *[True] * 6, False]
    with pytest.raises(ValueError, match="2 cells"):
        list(rows("| rule | module |"))
