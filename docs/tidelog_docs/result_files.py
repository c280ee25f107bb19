"""Keys of the files in `out/`, from the docstrings of the code that writes them.

A docstring has an entry "- `key`, `key`: meaning." for each key, without those of inner objects.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from tidelog_docs.markdown import cell, code, table

ROOT = Path(__file__).parents[2]
# Classes and functions, by path.
DOCUMENTED = {
    "libs/tidelog_runtime/demo/report.py": ("DemoResult",),
    "docs/tidelog_docs/__main__.py": ("result",),
    "bench/report.py": ("document", "Measured.as_json", "plain_document"),
    "bench/suite/document.py": ("content",),
    "bench/pauses/__main__.py": ("content",),
    "bench/console/results.py": ("Figures", "OverviewFigures"),
    "bench/console/watch.py": ("Watched",),
    "bench/grow/__main__.py": ("content",),
    "bench/grow/figures.py": ("RunFigures", "MoveFigures"),
    "bench/grow/ledger.py": ("ReadBack",),
    "bench/peers/results.py": ("content", "Done"),
    "bench/spark_read/results.py": ("content", "reading_as_json"),
    "bench/spark_check/__main__.py": ("content",),
    "bench/spark_kills/results.py": ("content",),
    "tests/model/__main__.py": ("to_report", "exploration"),
    "tests/simulation/report.py": ("summary",),
    "tests/mutants/__main__.py": ("Outcome.as_json",),
    "tests/api_fuzz/tallies.py": ("Tallies.document", "Tally.as_json"),
    "tests/faults/result.py": ("Result.as_json",),
    "tests/faults/bug_hunt.py": ("report",),
    "tests/upgrade/result.py": ("content", "of_run", "of_roll"),
}
_ENTRY = re.compile(r"^- ((?:`\w+`(?:, )?)+):\s", re.MULTILINE)


def names() -> Iterator[tuple[str, str]]:
    for path, objects in DOCUMENTED.items():
        yield from ((path, name) for name in objects)


def keys(path: str, name: str) -> str:
    """Raises `ValueError` if the documented keys are not the written ones."""
    node = _find(path, name)
    listed = entries(ast.get_docstring(node) or "")
    documented = [key for of_entry, _ in listed for key in of_entry]
    written, optional = written_keys(node)
    if (
        len(documented) != len(set(documented))
        or not written <= set(documented) <= written | optional
    ):
        wrong = sorted(set(documented) ^ written)
        raise ValueError(f"{path}: the docstring of {name} does not have the keys {wrong}")
    return table(
        ("key", "meaning"),
        ((", ".join(map(code, of_entry)), cell(text)) for of_entry, text in listed),
    )


def entries(docstring: str) -> list[tuple[list[str], str]]:
    """Returns the entries: their keys, and the meaning."""
    parts = _ENTRY.split(inspect.cleandoc(docstring))[1:]
    # An entry ends with its paragraph.
    return [
        (re.findall(r"\w+", of_entry), text.partition("\n\n")[0].rstrip().removesuffix("."))
        for of_entry, text in zip(parts[::2], parts[1::2], strict=True)
    ]


def written_keys(node: ast.ClassDef | ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Returns the keys that a class or function writes, and properties, which it may write."""
    if isinstance(node, ast.ClassDef):
        fields = (f.target for f in node.body if isinstance(f, ast.AnnAssign))
        properties = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
        return {f.id for f in fields if isinstance(f, ast.Name)}, properties
    returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
    keys = (key for value in returned if isinstance(value, ast.Dict) for key in value.keys)
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}, set()


def _find(path: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    node: ast.AST = ast.parse((ROOT / path).read_text())
    for part in name.split("."):
        node = next(
            inner
            for inner in ast.iter_child_nodes(node)
            if isinstance(inner, ast.ClassDef | ast.FunctionDef) and inner.name == part
        )
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return node
