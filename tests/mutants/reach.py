"""Counts how often a planted bug is executed.

`instrument` rewrites a changed file of the temporary tree so that each changed line calls
`hit`. The counts distinguish a bug that was never reached from one that was reached and not
detected.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

# Names the directory in which each process of a check leaves its counts.
DIRECTORY_VARIABLE = "TIDELOG_MUTANT_REACH"

_COUNTS: dict[str, int] = {}
_HIT = "_mutant_hit"


# -- within the temporary tree -----------------------------------------------------------------


def hit(line: str) -> bool:
    """Called by instrumented code. Always true, so that it can stand in an expression."""
    if not _COUNTS:
        atexit.register(_write)
    _COUNTS[line] = _COUNTS.get(line, 0) + 1
    return True


def _write() -> None:
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        Path(directory, f"{os.getpid()}.json").write_text(json.dumps(_COUNTS))


def collect(directory: Path) -> dict[str, int]:
    """The counts of all processes, by "file: code"."""
    total: dict[str, int] = {}
    for path in sorted(directory.glob("*.json")):
        for line, times in json.loads(path.read_text()).items():
            total[line] = total.get(line, 0) + times
    return total


# -- planting the counters ---------------------------------------------------------------------


def changed_lines(before: str, after: str) -> list[int]:
    """Lines of `after` that are not in `before`; where lines are only removed, the one that now
    follows them."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    found: list[int] = []
    for kind, _, _, start, end in matcher.get_opcodes():
        if kind != "equal":
            found += range(start + 1, max(end, start + 1) + 1)
    return found


def instrument(path: Path, name: str, lines: list[int]) -> list[str]:
    """Plants a counter at each of these lines; returns the names of those that have one, as
    "file: code". A line without code of its own (a bracket) has none."""
    text = path.read_text()
    tree = ast.parse(text)
    code = text.splitlines()
    names: list[str] = []
    for number in dict.fromkeys(lines):
        line = f"{name}: {code[min(number, len(code)) - 1].strip()}"
        if _plant(tree, number, line):
            names.append(line)
    _import_hit(tree)
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)) + "\n")
    return names


def _plant(tree: ast.Module, number: int, line: str) -> bool:
    """At the outermost expression that begins on the line within a longer statement, else before
    the statement that begins there or, failing that, that contains it."""
    block, index = _innermost(tree, number)
    if block is None:
        return False
    statement = block[index]
    first = min([statement.lineno, *(d.lineno for d in _decorators(statement))])
    if first < number <= _end_of_head(statement):
        marker = _Marker(number, line)
        marker.visit(statement)
        if marker.planted:
            return True
    block.insert(index, ast.Expr(_call(line)))
    return True


def _innermost(tree: ast.Module, number: int) -> tuple[list[ast.stmt] | None, int]:
    """The innermost block with a statement that contains the line, or follows it first."""
    best: tuple[list[ast.stmt] | None, int] = (None, 0)
    blocks: list[list[ast.stmt]] = [tree.body]
    while blocks:
        block = blocks.pop()
        for index, statement in enumerate(block):
            if not hasattr(statement, "lineno") or _is_docstring(statement):
                continue
            end = statement.end_lineno or statement.lineno
            if _starts_at(statement) <= number <= end:
                best = (block, index)
                blocks = [] if _has_in_head(statement, number) else [*_blocks_of(statement)]
                break
            if _starts_at(statement) > number:
                if _is_future_import(statement):
                    continue
                best = (block, index) if best[0] is None or block is not tree.body else best
                break
    return best


def _has_in_head(statement: ast.stmt, number: int) -> bool:
    """Whether the line runs whatever the statement's own block does: as a condition, say. The head
    of a definition runs once, and is counted where its block begins."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return number <= _end_of_head(statement) and not isinstance(statement, definitions)


def _starts_at(statement: ast.stmt) -> int:
    return min([statement.lineno, *(d.lineno for d in _decorators(statement))])


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    return getattr(statement, "decorator_list", [])


def _blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if block:
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _end_of_head(statement: ast.stmt) -> int:
    """The last line before the statement's own block, or its last line."""
    # Counters that are planted already have no line of their own.
    own = [[s for s in block if hasattr(s, "lineno")] for block in _blocks_of(statement)]
    starts = [_starts_at(block[0]) for block in own if block]
    return min(starts) - 1 if starts else statement.end_lineno or statement.lineno


class _Marker(ast.NodeTransformer):
    """Wraps the first expression that begins on a line as `(hit(line), expression)[1]`."""

    def __init__(self, number: int, line: str) -> None:
        self._number = number
        self._line = line
        self.planted = False

    def visit(self, node: ast.AST) -> ast.AST:
        if self.planted or isinstance(node, (ast.Starred, ast.Slice, ast.FormattedValue)):
            return super().generic_visit(node) if not self.planted else node
        is_value = isinstance(node, ast.expr) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        )
        if is_value and getattr(node, "lineno", 0) == self._number:
            assert isinstance(node, ast.expr)
            self.planted = True
            pair = ast.Tuple([_call(self._line), node], ast.Load())
            return ast.Subscript(pair, ast.Constant(1), ast.Load())
        return super().generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node


def _call(line: str) -> ast.Call:
    return ast.Call(ast.Name(_HIT, ast.Load()), [ast.Constant(line)], [])


def _import_hit(tree: ast.Module) -> None:
    at = 0
    for index, statement in enumerate(tree.body):
        if _is_docstring(statement) or _is_future_import(statement):
            at = index + 1
        else:
            break
    tree.body.insert(at, ast.ImportFrom("mutants.reach", [ast.alias("hit", _HIT)], 0))
