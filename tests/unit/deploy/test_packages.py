"""Inputs of `make lock`, and the lines that a set-up shows."""

from __future__ import annotations

import re
import sys

import pytest

from deploy.packages import progress, requirements

KNOWN = {
    "a": ["x>=1"],
    "a[cli]": ["y"],
    "b": ["a", "z"],
    "b[all]": ["a[cli]", "b[web]", "v"],
    "b[web]": ["w"],
}


@pytest.mark.parametrize(
    ("name", "found"), [("b", {"x>=1", "z"}), ("b[all]", {"y", "w", "v"}), ("a", {"x>=1"})]
)
def test_own_distributions_are_followed_and_not_printed(name: str, found: set[str]) -> None:
    assert set(requirements.foreign(name, KNOWN)) == found


def test_a_local_cluster_requires_what_all_its_parts_require() -> None:
    known = requirements.declared()
    local = set(requirements.foreign("tidelog-services[local]", known))
    assert local >= {*known["tidelog[cli]"], *known["tidelog-services[gateway]"]}


def test_an_unknown_name_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert requirements.main(["tidelog", "tidelog[gui]"]) == 2
    assert "unknown: tidelog[gui]; there are build, " in capsys.readouterr().err


def test_a_step_of_a_set_up_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    program = "print('Collecting a==1'); print('  Downloading'); print('Collecting b==2')"
    assert progress.main(["install a.lock", sys.executable, "-c", program]) == 0
    assert re.fullmatch(r"install a\.lock … 2 packages, \d+ s\n", capsys.readouterr().out)


def test_a_failed_step_shows_what_the_command_printed(capsys: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print('no such package'); sys.exit(3)"
    assert progress.main(["install a.lock", sys.executable, "-c", program]) == 3
    assert capsys.readouterr().err == (
        "no such package\ninstall a.lock: failed with exit status 3\n"
    )
