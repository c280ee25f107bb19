"""Distributions that pip installs from an index, as users get them (`make packages-test`).

`integration/test_distributions.py` installs every distribution and extra without an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.distributions import (
    INSTALL_TIMEOUT_SECONDS,
    Wheel,
    built_wheels,
    install_by_pip,
    locked,
    lowest,
)
from integration.test_distributions import CASES, IMPORT_ALL, Case

pytestmark = pytest.mark.timeout(2 * INSTALL_TIMEOUT_SECONDS)

BY_NAME = {case.requirement: case for case in CASES}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    return built_wheels(tmp_path_factory.mktemp("wheels"))


def check(case: Case, directory: Path, wheels: dict[str, Wheel], versions: list[str]) -> None:
    """The first command works, and all modules can be imported."""
    environment = install_by_pip(directory, case.requirement, wheels, versions)
    done = environment.run(*case.command, work=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert case.shows in done.stdout
    arguments = (",".join(case.packages), ",".join(case.without))
    done = environment.run("python", "-c", IMPORT_ALL, *arguments, work=directory)
    assert done.returncode == 0, done.stderr


def test_pip_finds_what_the_command_line_requires(wheels: dict[str, Wheel], tmp_path: Path) -> None:
    check(BY_NAME["tidelog[cli]"], tmp_path / "new", wheels, locked())


def test_the_client_works_with_the_lowest_versions_that_it_declares(
    wheels: dict[str, Wheel], tmp_path: Path
) -> None:
    versions = lowest(wheels["tidelog"])
    assert len(versions) == 6
    check(BY_NAME["tidelog"], tmp_path / "new", wheels, versions)
