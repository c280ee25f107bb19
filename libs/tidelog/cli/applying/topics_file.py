"""Reads files of topics: YAML, of which JSON is a part."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidelog.cli.applying.declarations import DeclaredTopic, declared_topics
from tidelog.cli.exit_status import UsageError

# About a hundred bytes for each of MAX_DECLARED_TOPICS topics, and room for comments.
MAX_FILE_BYTES = 4 << 20
STDIN = "-"


def read_topics(paths: Sequence[str]) -> list[DeclaredTopic]:
    """Returns the topics of all files, ordered by name; `-` is the standard input.

    Raises `UsageError` for an invalid file, and `OSError`.
    """
    if paths.count(STDIN) > 1:
        raise UsageError("-f - is given twice; the standard input can be read once")
    return declared_topics([_read(path) for path in paths])


def _read(path: str) -> tuple[str, Any]:
    source = "the standard input" if path == STDIN else path
    if path == STDIN:
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{source} has more than {MAX_FILE_BYTES:,} bytes; split it")
    return source, parse_yaml(content, source)


def parse_yaml(content: bytes, source: str) -> Any:
    """Returns the single document. Raises `UsageError`, also for a key that is given twice, which
    YAML's own parser accepts."""
    import yaml

    class StrictLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if isinstance(key, str | int | float | bool):
                    if key in seen:
                        line = key_node.start_mark.line + 1
                        raise UsageError(f"{source}, line {line}: {key!r} is given twice")
                    seen.add(key)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content, StrictLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not YAML: {error}") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{source} cannot be read as YAML: {error}") from None
