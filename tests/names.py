"""`python -m names`: prints each name that has two meanings, or a word that prose avoids.

- In a package each class and each module has a name of its own. A second one of the same name
  needs an entry in ALLOWED, with the reason why both mean the same.
- No more than MAX_MODULES modules of `libs` and `services` have one name.
- The names of functions and parameters in tests have none of the words of `wording.INSTEAD`.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from documented import ROOT
from wording import words

PRODUCT = ("libs", "services")
MAX_MODULES = 3
_SPECIAL_MODULES = ("__init__", "__main__", "conftest")
# As names of parameters these say nothing about the role.
VAGUE_PARAMETERS = {
    "wanted": "what it is, or expected, target, requested or selected",
    "asked": "what it is, or requested",
}


class Allowed(NamedTuple):
    """`places`: how many classes or modules have the name."""

    places: int
    reason: str


_BODY = "the REST body of the value of this name"
_COMMAND = "the command that calls the library module of this name"
_RESOURCE = "the REST resource that returns what the module of this name keeps"
_VIEWS = "each part declares, as a Protocol, which methods of the same object it uses"

# By package and name: what has the same meaning in two layers.
ALLOWED = {
    ("tidelog", "creation.py"): Allowed(2, _COMMAND),
    ("tidelog", "restoration.py"): Allowed(2, _COMMAND),
    ("tidelog_admin_api", "DamagedRange"): Allowed(2, _BODY),
    ("tidelog_admin_api", "History"): Allowed(2, _BODY),
    ("tidelog_admin_api", "history.py"): Allowed(2, _RESOURCE),
    ("tidelog_broker", "Replicas"): Allowed(4, _VIEWS),
    ("tidelog_controller", "Admin"): Allowed(2, _VIEWS),
}


def ambiguous(
    sources: Mapping[str, str], allowed: Mapping[tuple[str, str], Allowed] = ALLOWED
) -> list[str]:
    """Returns complaints about names that several classes or modules of a package have.

    - `sources`: the texts of modules by their paths
    """
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, source in sources.items():
        package = next((part for part in path.split("/") if part.startswith("tidelog")), None)
        if package is not None:
            for name in _names_in(path, source):
                places[package, name].append(path)
    complaints = []
    for key in sorted(places.keys() | allowed.keys()):
        found, most = places.get(key, []), allowed[key].places if key in allowed else 1
        if len(found) > most:
            complaints.append(
                f"{key[1]} of {key[0]} has several meanings; rename by role, or give the reason "
                f"why not in ALLOWED of names.py: {', '.join(found)}"
            )
        elif len(found) < most:
            complaints.append(f"{key[1]} of {key[0]}: only {len(found)} left; correct ALLOWED")
    return complaints


def _names_in(path: str, source: str) -> Iterator[str]:
    """Yields the file name of the module and the names of its public classes."""
    if PurePosixPath(path).stem not in _SPECIAL_MODULES:
        yield PurePosixPath(path).name
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def overused(paths: Mapping[str, str]) -> list[str]:
    """Returns complaints about names that too many modules have."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_name[PurePosixPath(path).stem].append(path)
    return [
        f"more than {MAX_MODULES} modules have the name {name}: {', '.join(found)}"
        for name, found in sorted(by_name.items())
        if len(found) > MAX_MODULES and name not in _SPECIAL_MODULES
    ]


def badly_worded(source: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of functions and parameters of a test module, each with a complaint."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, vague = node.name, None
        elif isinstance(node, ast.arg):
            name, vague = node.arg, VAGUE_PARAMETERS.get(node.arg)
        else:
            continue
        for found in words(name.replace("_", " ")):
            yield node.lineno, f"{name!r} has {found.word!r}; name the role: {found.instead}"
        if vague is not None:
            yield node.lineno, f"{name!r} is a vague parameter; write {vague}"


def _sources(*folders: str) -> dict[str, str]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {_relative(path): path.read_text() for path in paths if "_pb2" not in path.name}


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def main() -> int:
    product = _sources(*PRODUCT)
    complaints = ambiguous(product) + overused(product)
    for path, source in _sources("tests").items():
        complaints += (f"{path}:{line}: {complaint}" for line, complaint in badly_worded(source))
    sys.stdout.writelines(f"{complaint}\n" for complaint in complaints)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
