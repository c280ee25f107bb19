"""The files, functions and classes that ARCHITECTURE.md and docs/internals name exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from documented import ROOT

FOLDERS = ("libs", "services", "proto", "tests", "deploy", "docs")
FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|proto|js|toml|yml|txt))`")
# `first`, `Class.second` and `CONSTANT` in `package/module.py`
NAMES = re.compile(r"((?:`[\w.]+`(?:, | and ))*`[\w.]+`) (?:[a-z ]{0,20} )?in `((?:\w+/)*\w+\.py)`")


def named_pages() -> list[Path]:
    return [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]


@cache
def files() -> tuple[Path, ...]:
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))
    return (*ROOT.glob("*.*"), *below)


@cache
def at(path: str) -> tuple[Path, ...]:
    """The files whose paths end with `path`."""
    return tuple(file for file in files() if f"/{file}".endswith(f"/{path}"))


def missing_names(text: str) -> list[str]:
    """Names that no file of the given path defines, as a function, a class or a constant."""
    missing = []
    for names, path in NAMES.findall(" ".join(text.split())):
        sources = [file.read_text() for file in at(path)]
        for name in re.findall(r"`([\w.]+)`", names):
            # Each part of a dotted name is defined in the same file.
            defined = [
                rf"^\s*(?:async def|def|class) {part}\b|^\s*{part}(?:: .*)? = "
                for part in name.split(".")
            ]
            if not any(all(re.search(d, s, re.MULTILINE) for d in defined) for s in sources):
                missing.append(f"{name} in {path}")
    return missing


@pytest.mark.parametrize("page", named_pages(), ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    assert [path for path in FILE.findall(page.read_text()) if not at(path)] == []


@pytest.mark.parametrize("page", named_pages(), ids=lambda page: page.name)
def test_named_functions_and_classes_exist(page: Path) -> None:
    assert missing_names(page.read_text()) == []


def test_a_wrong_name_would_be_found() -> None:
    text = "`next_state`, `Ebb` and `Flow.x` in\n`policies/leader_election.py`"
    path = "policies/leader_election.py"
    assert missing_names(text) == [f"Ebb in {path}", f"Flow.x in {path}"]


def test_the_overview_names_functions() -> None:
    text = " ".join((ROOT / "ARCHITECTURE.md").read_text().split())
    assert len(NAMES.findall(text)) > 50
