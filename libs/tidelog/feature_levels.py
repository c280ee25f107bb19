"""The feature levels of a cluster: what each enables, and which ones this release supports.

The level of a cluster is a number in the metadata store. A process registers only if it supports
the level (docs/reference/versions.md, docs/adr/0033). What an older release does not understand,
in the store, in requests or in files, is used from a certain level on. Pure.
"""

from __future__ import annotations

from typing import NamedTuple


class LevelDefinition(NamedTuple):
    """A level of a cluster. `release`: the first one that supports it. `enables`: for people."""

    level: int
    release: str
    enables: str


class LevelRange(NamedTuple):
    """The levels that a process supports, both ends included."""

    oldest: int
    newest: int

    def supports(self, level: int) -> bool:
        return self.oldest <= level <= self.newest

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return f"feature level {self.newest}"
        return f"feature levels {self.oldest} to {self.newest}"


# In ascending order without gaps. A release adds a level only for a change that its predecessor
# does not understand, and removes the lowest ones that its predecessor no longer needed.
FEATURE_LEVELS = (LevelDefinition(1, "0.1.0", "everything that release 0.1.0 stores and sends"),)

# The level of a cluster, and the only one of a process, that names none.
FIRST_LEVEL = 1
UNREPORTED = LevelRange(FIRST_LEVEL, FIRST_LEVEL)

SUPPORTED = LevelRange(FEATURE_LEVELS[0].level, FEATURE_LEVELS[-1].level)


def unsupported(whose: str, level: int, levels: LevelRange, version: str) -> str:
    """Returns why a process of release `version` must not take part at `level`, and what to do.

    `whose`: what has the level, such as "cluster n2m0".
    """
    if level > levels.newest:
        remedy = f"start a release that supports level {level}, the one that ran here before"
    else:
        remedy = (
            f"start the release that ran here before; once all processes support level "
            f"{levels.oldest}, raise the level with tidelog cluster upgrade, then start this one"
        )
    return (
        f"{whose} is at feature level {level}, and this process of release {version} supports "
        f"{levels}: it is too {'old' if level > levels.newest else 'new'}; {remedy}"
    )


def releases_apart(one: str, other: str) -> int | None:
    """Returns how many minor releases lie between two versions; None: it cannot be said.

    Another major release counts as more than any supported distance.

    >>> releases_apart("0.1.0", "0.2.3"), releases_apart("0.1.0", "1.0.0"), releases_apart("", "1")
    (1, 100, None)
    """
    numbers = [_major_and_minor(version) for version in (one, other)]
    if numbers[0] is None or numbers[1] is None:
        return None
    (major, minor), (other_major, other_minor) = numbers[0], numbers[1]
    return abs(minor - other_minor) if major == other_major else FAR_APART


# The distance between releases of different major versions.
FAR_APART = 100
# Clients and services work together over this many minor releases.
MAX_RELEASES_APART = 1


def _major_and_minor(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])
