"""Plants a bug in the syntax tree of a function, so that neither comments nor the place of the
code matter.

A change replaces statements of one symbol by others. A compound statement whose body is `...`
stands for its head alone: what replaces it takes the body over. `...` as a statement of its own
inserts the body without its head. As an expression in a pattern `...` matches any other.
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

_CHANGE = re.compile(
    r"^In: (?P<file>\S+)(?: (?P<symbol>\S+))?\nReplace:\n(?P<old>(?:(?:    .*)?\n)+)"
    r"By:\n(?P<new>(?:(?:    .*)?\n|\Z)*)",
    re.MULTILINE,
)
# A pattern whose body is `...` says nothing of these where it has none.
_OTHER_BLOCKS = ("orelse", "finalbody", "handlers")

Block = list[ast.stmt]


class PatchError(Exception):
    """A planted bug that is not written as README.md says, or does not fit the code; the message
    says what would be right."""


class Change(NamedTuple):
    """`symbol`: as in "Partition.become_leader"; "": the module itself."""

    file: str
    symbol: str
    old: str
    new: str


def changes_in(text: str) -> list[Change]:
    return [
        Change(
            found["file"],
            found["symbol"] or "",
            textwrap.dedent(found["old"]),
            textwrap.dedent(found["new"]),
        )
        for found in _CHANGE.finditer(text)
    ]


def normalized(source: str) -> str:
    """The code alone, without comments, in one layout."""
    return ast.unparse(ast.parse(source)) + "\n"


def rewritten(source: str, changes: list[Change]) -> str:
    """The normalized source with these changes. Raises `PatchError` where the statements to
    replace are not exactly once in their symbol."""
    tree = ast.parse(source)
    for change in changes:
        _apply(tree, change)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _apply(tree: ast.Module, change: Change) -> None:
    old, new = ast.parse(change.old).body, ast.parse(change.new).body
    if not old:
        raise PatchError(f"{_place(change)}: give at least one statement to replace")
    found = [
        (block, at)
        for block in _blocks(_scope(tree, change))
        for at in range(len(block) - len(old) + 1)
        if all(_is_same(p, s) for p, s in zip(old, block[at : at + len(old)], strict=True))
    ]
    if len(found) != 1:
        raise PatchError(
            f"{_place(change)} has the statements to replace {len(found)} times, not once; plant "
            f"the same bug in the present code:\n{textwrap.indent(change.old, '    ')}"
        )
    block, at = found[0]
    heads = [s for p, s in zip(old, block[at:], strict=False) if _is_head(p)]
    block[at : at + len(old)] = list(_filled(new, heads))


def _place(change: Change) -> str:
    return f"{change.symbol or 'the module'} in {change.file}"


def _scope(tree: ast.Module, change: Change) -> ast.AST:
    scope: ast.AST = tree
    for name in change.symbol.split(".") if change.symbol else ():
        inner = [
            node
            for block in _blocks(scope)
            for node in block
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and node.name == name
        ]
        if len(inner) != 1:
            raise PatchError(f"{_place(change)} is there {len(inner)} times, not once")
        scope = inner[0]
    return scope


def _blocks(scope: ast.AST) -> Iterator[Block]:
    for node in ast.walk(scope):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _is_ellipsis(block: object) -> bool:
    return (
        isinstance(block, list)
        and len(block) == 1
        and isinstance(block[0], ast.Expr)
        and isinstance(block[0].value, ast.Constant)
        and block[0].value.value is ...
    )


def _is_head(statement: ast.stmt) -> bool:
    return _is_ellipsis(getattr(statement, "body", None))


def _is_same(pattern: Any, found: Any) -> bool:
    if isinstance(pattern, list):
        return (
            isinstance(found, list)
            and len(pattern) == len(found)
            and all(map(_is_same, pattern, found))
        )
    if not isinstance(pattern, ast.AST):
        return bool(pattern == found)
    if isinstance(pattern, ast.Constant) and pattern.value is ...:
        return isinstance(found, ast.expr)
    if type(pattern) is not type(found):
        return False
    is_head = isinstance(pattern, ast.stmt) and _is_head(pattern)
    return all(
        _is_same(value, getattr(found, field))
        for field, value in ast.iter_fields(pattern)
        if not (is_head and (field == "body" or (field in _OTHER_BLOCKS and not value)))
    )


def _filled(new: Block, heads: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with the bodies of the heads that they replace, in their order."""
    rest = iter(heads)
    for statement in new:
        if _is_ellipsis([statement]):
            yield from copy.deepcopy(getattr(next(rest, None), "body", []))
        elif _is_head(statement):
            head = next(rest, None)
            for field in ("body", *_OTHER_BLOCKS):
                if head is not None and (field == "body" or not getattr(statement, field, True)):
                    setattr(statement, field, copy.deepcopy(getattr(head, field)))
            yield statement
        else:
            yield statement
