"""The rules of docs/internals, the tests that prove them, and the generated page with both.

`docs/internals/rules.toml` has the rules. A test names the rules that it proves by
`@pytest.mark.rule("decisions-ordered-by-revision")`. `make rules` (`python -m rules`) generates
`docs/internals/rules-and-tests.md` from both."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from documented import ROOT

TESTS = ROOT / "tests"
INTERNALS = ROOT / "docs" / "internals"
RULES = INTERNALS / "rules.toml"
PAGE = INTERNALS / "rules-and-tests.md"
PACKAGES = (
    "services/broker/tidelog_broker",
    "services/controller/tidelog_controller",
    "services/pipeline/tidelog_pipeline",
    "libs/tidelog_runtime",
    "libs/tidelog",
)
MARK = "pytest.mark.rule"
# Two to six words.
ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+){1,5}")
HEADER = ("| rule | id | module | test |", "| --- | --- | --- | --- |")
ONLY_TABLE = "This table is the page of these rules: no other one explains them."
OUT_OF_DATE = (
    "docs/internals/rules-and-tests.md differs from docs/internals/rules.toml and the marks of the "
    "tests: run `make rules` and commit the page"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of rules.toml; the beginning of that file explains the keys."""

    id: str
    title: str
    modules: Sequence[str]
    label: str = ""
    page: str = ""


class Group(NamedTuple):
    """`only_table`: the generated table alone states its rules, which have no page."""

    title: str
    rules: Sequence[Rule]
    only_table: bool = False


class Catalogue(NamedTuple):
    introduction: str
    groups: Sequence[Group]

    @property
    def rules(self) -> list[Rule]:
        return [rule for group in self.groups for rule in group.rules]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(rule.id for rule in self.rules)


class Mark(NamedTuple):
    """`test`: file below `tests`, `::`, and name without `test_`."""

    rule: str
    test: str


def parse(text: str) -> Catalogue:
    """Raises `KeyError` or `TypeError` for a missing or unknown key of a rule."""
    tables = tomllib.loads(text)
    groups = [
        Group(
            group["title"],
            [Rule(**rule) for rule in group["rules"]],
            group.get("only_table", False),
        )
        for group in tables["groups"]
    ]
    return Catalogue(tables["introduction"], groups)


def marks(file: str, source: str) -> Iterator[Mark]:
    """The marks of a file below `tests`, in their order.

    Raises `ValueError` for a mark whose rules cannot be determined: one that does not decorate a
    test, or whose arguments are not literal ids."""
    tree = ast.parse(source)
    unread = {node.lineno for node in ast.walk(tree) if _is_mark(node)}
    for node in _tests(tree):
        for decorator in node.decorator_list:
            ids = _ids(decorator)
            if not ids or not Path(file).name.startswith("test_"):
                continue
            unread.discard(decorator.lineno)
            for rule in ids:
                yield Mark(rule, f"{file}::{node.name.removeprefix('test_')}")
    if unread:
        at = ", ".join(f"{file}:{line}" for line in sorted(unread))
        raise ValueError(
            f"{at}: a rule is marked elsewhere than on a test, or not by literal ids; "
            'write @pytest.mark.rule("id") directly above the test'
        )


def _is_mark(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == MARK


def _tests(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """In the order of their lines."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]
    return sorted(found, key=lambda node: node.lineno)


def _ids(decorator: ast.expr) -> list[str]:
    if not isinstance(decorator, ast.Call) or not _is_mark(decorator.func):
        return []
    values = [each.value for each in decorator.args if isinstance(each, ast.Constant)]
    ids = [value for value in values if isinstance(value, str)]
    return ids if len(ids) == len(decorator.args) and not decorator.keywords else []


@cache
def catalogue() -> Catalogue:
    return parse(RULES.read_text())


@cache
def all_marks() -> tuple[Mark, ...]:
    sources = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    return tuple(
        mark
        for path, source in sources.items()
        if MARK in source
        for mark in marks(path.relative_to(TESTS).as_posix(), source)
    )


def places_of(module: str) -> list[Path]:
    return [place for package in PACKAGES if (place := ROOT / package / module).is_file()]


def faults(known: Catalogue, marked: Iterable[Mark]) -> list[str]:
    """The errors in the rules and in the marks of tests; each names the rule or the test."""
    counts = Counter(marked)
    proven = {mark.rule for mark in counts}
    ids = Counter(rule.id for rule in known.rules)
    found = [fault for rule in known.rules for fault in _faults_of(rule, proven)]
    found += [fault for group in known.groups for fault in _faults_of_pages(group)]
    found += [f"{rule}: {count} rules have this id" for rule, count in ids.items() if count > 1]
    found += [
        f"{test}: marks {rule}, which rules.toml does not have"
        for rule, test in counts
        if rule not in ids
    ]
    found += [f"{test}: marks {rule} twice" for (rule, test), count in counts.items() if count > 1]
    return found


def _faults_of(rule: Rule, proven: Collection[str]) -> Iterator[str]:
    if not ID.fullmatch(rule.id):
        yield f"{rule.id}: an id is two to six words, such as decisions-ordered-by-revision"
    if rule.id not in proven:
        yield f'{rule.id}: no test has @pytest.mark.rule("{rule.id}")'
    if not rule.modules:
        yield f"{rule.id}: names no module"
    for module in rule.modules:
        places = places_of(module)
        if len(places) != 1:
            yield f"{rule.id}: {module} is in {len(places)} packages and has to be in exactly one"


def _faults_of_pages(group: Group) -> Iterator[str]:
    for rule in group.rules:
        if group.only_table and rule.page:
            yield f"{rule.id}: has a page, and {group.title!r} says that only its table has rules"
        elif not group.only_table and not rule.page:
            yield f"{rule.id}: no page explains it; set `page`, or `only_table` of its group"


def page(known: Catalogue, marked: Iterable[Mark]) -> str:
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for mark in marked:
        tests[mark.rule].append(mark.test)
    lines = ["# Rules, modules and tests", "", known.introduction.strip()]
    for group in known.groups:
        lines += ["", f"## {group.title}", ""]
        lines += [ONLY_TABLE, ""] if group.only_table else []
        lines += HEADER
        lines += [_row(rule, tests[rule.id]) for rule in group.rules]
    return "\n".join(lines) + "\n"


def _row(rule: Rule, tests: Iterable[str]) -> str:
    statement = f"{rule.label}: {rule.title}" if rule.label else rule.title
    linked = f"[{statement}]({rule.page})" if rule.page else statement
    return f"| {linked} | `{rule.id}` | {_quoted(rule.modules)} | {_quoted(tests)} |"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rules", description="Generate the page.")
    parser.add_argument("--check", action="store_true", help="only check that it is up to date")
    options = parser.parse_args(arguments)
    try:
        known, marked = catalogue(), all_marks()
    except ValueError as error:
        return _fail([str(error)])
    if wrong := faults(known, marked):
        return _fail(wrong)
    generated = page(known, marked)
    if not options.check:
        PAGE.write_text(generated)
    elif PAGE.read_text() != generated:
        return _fail([OUT_OF_DATE])
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is up to date with rules.toml and the tests.\n")
    return 0


def _fail(reasons: Sequence[str]) -> int:
    sys.stderr.write("\n".join(reasons) + "\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
