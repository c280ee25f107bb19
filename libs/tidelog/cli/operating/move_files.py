"""Parses files of moves: JSON as `--dry-run --json` prints a plan, or one move a line. Pure
functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.targets import parse_move
from tidelog.model import MAX_INT32

if TYPE_CHECKING:
    from tidelog.admin_messages import Move

_FIELDS = frozenset({"topic", "topic_id", "partition", "original", "target"})
_FORM = (
    'give {"moves": [{"topic": "sea", "partition": 0, "target": [4, 2]}]}, the output of '
    "--dry-run --json, or a line sea/0=4,2 for each"
)


def parse_moves(text: str, source: str) -> list[Move]:
    """Raises `UsageError`, which names the `source` and the fault."""
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(text, source)
    moves: list[Move] = []
    for number, line in enumerate(text.splitlines(), 1):
        stated = line.partition("#")[0].strip()
        if stated:
            try:
                moves.append(parse_move(stated))
            except UsageError as error:
                raise UsageError(f"{source}, line {number}: {error}") from None
    return moves


def _from_json(text: str, source: str) -> list[Move]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not JSON ({error}); {_FORM}") from None
    if isinstance(document, dict):
        plan = document.get("plan")
        document = (plan if isinstance(plan, dict) else document).get("moves")
    if not isinstance(document, list):
        raise UsageError(f"{source} contains no moves; {_FORM}")
    return [_move(stated, f"{source}, move {number}") for number, stated in enumerate(document, 1)]


def _move(stated: object, where: str) -> Move:
    from tidelog.admin_messages import Move

    if not isinstance(stated, dict):
        raise UsageError(f"{where} is {json.dumps(stated)[:80]}; {_FORM}")
    unknown = sorted(str(name) for name in stated.keys() - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise UsageError(f"{where} has a field {unknown[0]!r}; the fields of a move: {known}")
    topic, partition = stated.get("topic"), stated.get("partition")
    if not isinstance(topic, str) or not topic or not _is_number(partition):
        raise UsageError(f"{where} names no topic and partition; {_FORM}")
    topic_id = stated.get("topic_id", "")
    if not isinstance(topic_id, str):
        raise UsageError(f"{where} has a topic_id that is not text; correct it, or leave it out")
    target = _ids(stated.get("target"), f"{where}: its target")
    original = _ids(stated["original"], f"{where}: its original") if stated.get("original") else ()
    return Move(topic, int(str(partition)), target, original, topic_id)


def _ids(stated: Any, what: str) -> tuple[int, ...]:
    if not isinstance(stated, list) or not stated or not all(map(_is_number, stated)):
        raise UsageError(f"{what} is not a list of broker ids, as [4, 2]")
    return tuple(stated)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT32
