"""Guarantees of `make test`: nothing is skipped silently."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import longest_first
import suites
from longest_first import TESTS
from suites import Outcome, Suite

ROOT_CONFTEST = Path(__file__).parents[1] / "conftest.py"


def test_the_closing_line_is_that_of_pytest() -> None:
    lines = ["one\n", "\x1b[32m==== \x1b[1m3 passed\x1b[0m, 1 failed in 0.12s ====\x1b[0m\n", "\n"]

    assert suites.closing_line(Suite("unit", 1), lines) == "==== 3 passed, 1 failed in 0.12s ===="


def test_an_interrupted_suite_has_no_closing_line() -> None:
    line = suites.closing_line(Suite("unit", 1), ["tests/unit/test_x.py ...\n"])

    assert line == "unit: pytest did not come to its end"


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_a_suite_without_its_system_package_is_named_and_fails_in_ci(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    status: int,
) -> None:
    for name in ("unit", "contract"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(suites, "TESTS", tmp_path)
    monkeypatch.setenv("CI", ci)
    needy = Suite("contract", 1, needs=("no-such-program",))
    monkeypatch.setattr(suites, "SUITES", (Suite("unit", 1), needy))
    monkeypatch.setattr(suites, "run", lambda suite: Outcome(suite, True, 0.1, "1 passed in 0.1s"))

    assert suites.main() == status
    assert "Left out: contract, which needs no-such-program" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "closing"), [("true", "1 failed"), ("false", "1 skipped")])
def test_a_skip_is_a_failure_in_ci(tmp_path: Path, ci: str, closing: str) -> None:
    (tmp_path / "conftest.py").write_text(ROOT_CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_it(): pytest.skip('why not')\n")

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        env={"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )

    assert closing in run.stdout.splitlines()[-1]


def test_test_processes_reuse_compiled_bytecode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("CI", "true")

    environment = suites.environment_of_tests()

    assert environment["CI"] == "true"
    assert not {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"} & set(environment)


def test_concurrent_test_processes_choose_different_ports(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(ROOT_CONFTEST.read_text())
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(
            "from pathlib import Path\n"
            "from tidelog_runtime.local import addresses\n"
            "def test_it():\n"
            "    chosen = ' '.join(map(str, addresses.OTHER_PORTS))\n"
            f"    Path({str(tmp_path / name)!r}).write_text(chosen)\n"
        )

    command = ["-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadfile"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *command, "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    one, two = ((tmp_path / name).read_text().split() for name in ("one", "two"))
    assert len(one) == len(two) > 1_000
    assert not set(one) & set(two)


def test_only_a_suite_that_runs_in_parallel_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "integration").mkdir()
    monkeypatch.setattr(suites, "TESTS", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    beside = (Suite("contract", 2), Suite("monitoring", 3, needs=("no-such-program",)))
    monkeypatch.setattr(suites, "SUITES", (Suite("integration", 1, beside=beside),))
    ran: list[Suite] = []

    def run(suite: Suite) -> Outcome:
        ran.append(suite)
        return Outcome(suite, True, 1, "")

    monkeypatch.setattr(suites, "run", run)

    assert suites.main() == 0
    assert [(suite.names, suite.total_budget_seconds) for suite in ran] == [
        ("integration, contract", 3)
    ]
    assert "Left out: monitoring, which needs no-such-program" in capsys.readouterr().out


def test_the_files_that_run_first_exist() -> None:
    assert all((TESTS / name).is_file() for name in longest_first.LONGEST)
    assert len(set(longest_first.LONGEST)) == len(longest_first.LONGEST)


def test_longer_files_come_first_and_all_others_keep_their_order() -> None:
    first, second = (TESTS / name for name in longest_first.LONGEST[:2])
    files = [TESTS / "b.py", second, TESTS / "a.py", first, second]
    items = [SimpleNamespace(path=path) for path in files]
    longest_first.order(cast(Any, items))
    assert [i.path for i in items] == [first, second, second, TESTS / "b.py", TESTS / "a.py"]
