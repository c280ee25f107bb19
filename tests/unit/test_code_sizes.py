"""Files have at most 500 lines and functions at most 70 (code style). Longer ones are listed
here with their lines and may only shrink: a longer one fails, and so does an obsolete entry.
Generated code does not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
# An entry may exceed the present size by this much, so that small changes need no update here.
SLACK_LINES = 25
FOLDERS = ("bench", "deploy", "docs", "libs", "services", "tests")
GENERATED = ROOT / "libs" / "tidelog" / "v1"

LONG_FILES = {
    "tests/simulation/replica_rules.py": 517,
    "tests/simulation/store_rules.py": 546,
    "tests/unit/broker/core/partition/test_producer_state.py": 537,
    "tests/unit/broker/replication/test_replica_fetcher.py": 626,
    "tests/unit/client/fake_broker.py": 566,
    "tests/unit/controller/driver.py": 673,
    "tests/unit/controller/requests/test_partition_admin.py": 562,
    "tests/unit/controller/requests/test_topic_admin.py": 550,
    "tests/unit/interfaces/bad_input.py": 897,
}
LONG_FUNCTIONS = {
    "tests/unit/controller/edge/test_admin_leaders_edge.py:test_topic_descriptions_are_sent_with_all_fields": 87,  # noqa: E501
}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if GENERATED not in path.parents:
                yield path


def long_ones() -> tuple[dict[str, int], dict[str, int]]:
    """Files, and functions as path:name, that exceed the limits, with their lines."""
    files: dict[str, int] = {}
    functions: dict[str, int] = {}
    for path in sources():
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            files[name] = lines
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    functions[f"{name}:{node.name}"] = length
    return files, functions


def complaints(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    messages = []
    for name, lines in found.items():
        most = allowed.get(name)
        if most is None:
            messages.append(f"{name} has {lines} lines: split it along responsibilities")
        elif lines > most:
            messages.append(f"{name} has {lines} lines, more than the {most} that it had: split it")
        elif lines < most - SLACK_LINES:
            messages.append(f"{name} has {lines} lines: lower its entry from {most}")
    gone = [
        f"{name} is within the limit: remove its entry" for name in allowed if name not in found
    ]
    return messages + gone


def test_no_file_and_no_function_grows_beyond_the_limits() -> None:
    files, functions = long_ones()
    assert complaints(files, LONG_FILES) + complaints(functions, LONG_FUNCTIONS) == []


def test_growth_new_and_obsolete_entries_are_named() -> None:
    allowed = {"a": 600, "b": 600, "c": 600, "d": 600}
    found = {"a": 601, "b": 590, "d": 500, "e": 501}
    assert complaints(found, allowed) == [
        "a has 601 lines, more than the 600 that it had: split it",
        "d has 500 lines: lower its entry from 600",
        "e has 501 lines: split it along responsibilities",
        "c is within the limit: remove its entry",
    ]
