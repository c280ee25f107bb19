"""An integration test asserts the presence of each cause that `explain` can report, with real
processes and a real fault."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tidelog.inspection.explain import causes

INTEGRATION = Path(__file__).parents[3] / "integration"
# Never separate findings: they are reported under their roots.
UNDER_THEIR_ROOTS = {
    causes.TAKES_NO_RECORDS,
    causes.LEADERSHIP_LEFT,
    causes.LEADER_LATE,
    causes.IN_ISR_AND_GONE,
}
# Functions that fail if a cause among their arguments is missing.
ASSERT_PRESENCE = {
    "until_found",
    "until_present",
    "assert_still_found",
    "assert_follows_from",
    "the",
    "found_from_here",
}
# Their arguments that assert no presence.
OTHER_ARGUMENTS = {"also", "missing", "scope", "any_of"}

Names = Mapping[str, ast.expr]


def all_causes() -> set[str]:
    """All causes in the order of findings, then those that only a move can have."""
    return {*causes.ORDER, *causes.BOUNDS_ON_MOVES} - UNDER_THEIR_ROOTS


@cache
def asserted_in_tests() -> frozenset[str]:
    """The causes whose presence a test asserts, by the word or by the name of its constant."""
    words: set[str] = set()
    for path in INTEGRATION.glob("test_*.py"):
        words |= words_of_assertions(path.read_text())
    return frozenset(cause for cause in all_causes() if {cause, cause.upper()} & words)


def words_of_assertions(source: str) -> set[str]:
    """The strings and names in the arguments of the calls that assert a presence."""
    module = ast.parse(source)
    of_module = assigned(module.body)
    words: set[str] = set()
    for function in module.body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = {**of_module, **assigned(ast.walk(function))}
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and called(call) in ASSERT_PRESENCE:
                    words |= words_of(call, names)
    return words


def assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def words_of(call: ast.Call, names: Names) -> set[str]:
    arguments: Sequence[ast.expr] = (
        *call.args,
        *(named.value for named in call.keywords if named.arg not in OTHER_ARGUMENTS),
    )
    return {word for argument in arguments for word in words_in(argument, names)}


def words_in(expression: ast.expr, names: Names) -> Iterator[str]:
    """Includes those of what was assigned to variables, except the arguments of other calls."""
    for node in without_calls(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in names:
            rest = {name: value for name, value in names.items() if name != node.id}
            yield from words_in(names[node.id], rest)


def without_calls(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from without_calls(child)


@pytest.mark.parametrize("cause", sorted(all_causes()))
def test_every_cause_has_an_integration_test(cause: str) -> None:
    assert cause in asserted_in_tests(), f"no integration test asserts that {cause} is found"


@pytest.mark.parametrize(
    "line",
    [
        "pass  # until_found(cluster, ('disk_full', 1))",
        "assert 'disk_full' not in causes_of(found)",
        "await until_gone(cluster, 'disk_full')",
        "await until_found(cluster, ('disk_slow', 1), also=(('disk_full', 1),))",
        "await until_found(cluster, ('disk_slow', 1), missing=('disk_full',))",
        "found = await until_found(c, also=(('disk_full', 1),)); the(found, 'disk_slow')",
        "others = {'disk_full'}",
        "found = 'disk_full' if broken else await until_found(cluster)",
    ],
)
def test_a_mention_of_a_cause_is_no_assertion_of_it(line: str) -> None:
    assert "disk_full" not in words_of_assertions(f"async def test():\n    {line}\n")


@pytest.mark.parametrize(
    "lines",
    [
        "await until_found(cluster, ('disk_full', 1))",
        "the(found, causes.DISK_FULL, 1)",
        "expected = (('disk_full', 1),)\n    await until_found(cluster, *expected)",
        "await until_found(cluster, *FULL)",
    ],
)
def test_a_cause_among_the_arguments_of_an_assertion_counts(lines: str) -> None:
    module = f"FULL = (('disk_full', 1),)\nasync def test():\n    {lines}\n"
    assert {"disk_full", "DISK_FULL"} & words_of_assertions(module)


def test_every_cause_has_a_rank() -> None:
    words = {
        value
        for name, value in vars(causes).items()
        if name.isupper() and isinstance(value, str) and value not in causes.SEVERITIES
    }
    assert words - all_causes() == UNDER_THEIR_ROOTS
