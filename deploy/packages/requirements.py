"""Prints the packages of others that Tidelog requires, one a line, as input of `make lock`.

    python deploy/packages/requirements.py tidelog 'tidelog-services[gateway]' dev

Each argument is a distribution of this repository, one of its extras, a dependency group of
`pyproject.toml`, or `build`, which builds the distributions. An extra is printed without what its
distribution requires in any case. Own distributions are followed and never printed: no lock pins
them.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

Declared = dict[str, list[str]]


def declared() -> Declared:
    """Returns what is required by each name that an argument can have."""
    client = tomllib.loads((ROOT / "pyproject.toml").read_text())
    services = tomllib.loads((ROOT / "services" / "pyproject.toml").read_text())
    return {
        "build": client["build-system"]["requires"],
        **client["dependency-groups"],
        **_distribution(client["project"]["name"], client["project"]),
        **_distribution(
            services["project"]["name"], services["tool"]["hatch"]["metadata"]["hooks"]["custom"]
        ),
    }


def _distribution(name: str, lists: Mapping[str, Any]) -> Declared:
    extras = lists["optional-dependencies"]
    return {name: lists["dependencies"], **{f"{name}[{extra}]": extras[extra] for extra in extras}}


def foreign(name: str, known: Declared) -> Iterator[str]:
    for requirement in known[name]:
        if requirement in known:
            yield from foreign(requirement, known)
        else:
            yield requirement


def main(argv: Sequence[str]) -> int:
    known = declared()
    if unknown := [name for name in argv if name not in known]:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(known))}\n")
        return 2
    found = {requirement for name in argv for requirement in foreign(name, known)}
    sys.stdout.writelines(f"{requirement}\n" for requirement in sorted(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
