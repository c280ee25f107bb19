"""The examples import what exists, so that a renamed module is found before a slow suite runs
them."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def example_code(page: Path) -> Iterator[str]:
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        yield from ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    else:
        yield from _BLOCK.findall(page.read_text())


def missing_imports(code: str) -> list[str]:
    """Returns what the code imports of Tidelog and cannot be imported."""
    missing = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidelog"):
            module = importlib.import_module(str(node.module))
            missing += [
                f"{node.module}.{name.name}"
                for name in node.names
                if not hasattr(module, name.name)
                and find_spec(f"{node.module}.{name.name}") is None
            ]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names if name.name.startswith("tidelog")]
            missing += [name for name in names if find_spec(name) is None]
    return missing


PAGES = [
    page
    for folder in ("docs", "examples")
    for page in sorted((ROOT / folder).rglob("*"))
    if page.suffix in {".md", ".ipynb"} and "node_modules" not in page.parts
]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_examples_import_what_exists(page: Path) -> None:
    for code in example_code(page):
        assert missing_imports(code) == []


def test_a_missing_module_is_found() -> None:
    assert missing_imports("from tidelog.client import NoSuchName") == ["tidelog.client.NoSuchName"]
