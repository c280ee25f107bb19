"""Every distribution and every documented extra works by itself, in an environment without anything
else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

import tidelog
from documented import ROOT
from integration.distributions import (
    Environment,
    Wheel,
    built_wheels,
    documented,
    install_commands,
    new_environment,
    required,
    size_of,
)

# The first test of an environment also installs it.
pytestmark = pytest.mark.timeout(300)

# What a program that only uses the clients has to install, beside the packages that these require.
CLIENT_REQUIRES = {
    "crc32c",
    "googleapis-common-protos",
    "grpcio",
    "lz4",
    "protobuf",
    "zstandard",
}
SERVICES = {"tidelog_admin_api", "tidelog_broker", "tidelog_controller", "tidelog_pipeline"}
# With pip and all tools of etcd; `make up` keeps less (`python -m bench.packages`).
MAX_LOCAL_BYTES = 165_000_000

_CLUSTER = """
import asyncio, pathlib
from tidelog_runtime.local.cluster import LocalCluster

async def main():
    cluster = LocalCluster(
        pathlib.Path("data"), brokers=1, controllers=1, gateway=True, usual_ports=False
    )
    try:
        await cluster.start()
        await cluster.ready()
        print(len(cluster.describe().brokers), cluster.describe().gateway is not None)
    finally:
        await cluster.stop()

asyncio.run(main())
"""


class Case(NamedTuple):
    """`command`: the first one of a user, which prints `shows`. `packages`: all modules in them can
    be imported, except `without`, which belong to other extras."""

    requirement: str
    command: tuple[str, ...]
    shows: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()


# For servers; what it imports is required by `tidelog-services`.
SERVER_MODULE = "tidelog.rpc.health"
CLIENT_EXTRAS = ("tidelog.cli", "tidelog.spark", "tidelog.testing")
CASES = (
    Case(
        "tidelog",
        ("python", "-c", "import tidelog.client; print(tidelog.__version__)"),
        tidelog.__version__,
        ("tidelog",),
        (*CLIENT_EXTRAS, SERVER_MODULE),
    ),
    Case("tidelog[cli]", ("tidelog", "topics", "--help"), "create", ("tidelog.cli",)),
    Case(
        "tidelog[spark]",
        ("python", "-c", "import tidelog.spark as s; print(s.TidelogDataSource.name())"),
        "tidelog",
        ("tidelog.spark",),
    ),
    Case(
        "tidelog[testing]",
        ("python", "-m", "pytest", "--fixtures", "-q"),
        "tidelog_cluster",
        ("tidelog.testing",),
    ),
    Case(
        "tidelog-services",
        ("python", "-m", "tidelog_broker", "--help"),
        "--broker-id",
        ("tidelog", "tidelog_broker", "tidelog_controller", "tidelog_runtime"),
        (*CLIENT_EXTRAS, "tidelog_runtime.demo", "tidelog_runtime.local.__main__"),
    ),
    Case(
        "tidelog-services[gateway]",
        ("python", "-m", "tidelog_admin_api", "--help"),
        "--bootstrap",
        ("tidelog_admin_api",),
    ),
    Case(
        "tidelog-services[local]",
        ("python", "-c", _CLUSTER),
        "1 True",
        ("tidelog.cli", "tidelog_runtime"),
    ),
    Case(
        "tidelog-services[jobs]",
        ("python", "-m", "tidelog_pipeline", "check", "--help"),
        "--",
        ("tidelog_pipeline",),
    ),
)
NAMES = [case.requirement for case in CASES]

IMPORT_ALL = """
import importlib, pkgutil, sys
packages, without = sys.argv[1].split(","), tuple(filter(None, sys.argv[2].split(",")))

def modules(name):
    if name.startswith(without):
        return
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), name + "."):
        yield from modules(found.name)
    yield name

print(sum(1 for package in packages for _ in modules(package)))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    return built_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def environment_with(
    wheels: dict[str, Wheel], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Environment]:
    """Returns the environment with this requirement, which all tests share."""

    @functools.cache
    def environment(requirement: str) -> Environment:
        directory = tmp_path_factory.mktemp("environment")
        return new_environment(directory, required(requirement, wheels))

    return environment


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_first_command_works(
    case: Case, environment_with: Callable[[str], Environment], tmp_path: Path
) -> None:
    done = environment_with(case.requirement).run(*case.command, work=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert case.shows in done.stdout


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_module_can_be_imported(
    case: Case, environment_with: Callable[[str], Environment], tmp_path: Path
) -> None:
    # `process_init` keeps a service from importing rich.
    without = (*case.without, "tidelog_runtime.process_init")
    arguments = (",".join(case.packages), ",".join(without))
    environment = environment_with(case.requirement)
    done = environment.run("python", "-c", IMPORT_ALL, *arguments, work=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


@pytest.mark.parametrize(
    ("requirement", "command", "names"),
    [
        ("tidelog", ("tidelog",), "tidelog[cli]"),
        ("tidelog", ("tidelog", "topics", "list", "--json"), "tidelog[cli]"),
        (
            "tidelog-services",
            ("python", "-m", "tidelog_admin_api", "--bootstrap", "127.0.0.1:1"),
            "tidelog-services[gateway]",
        ),
        ("tidelog-services", ("python", "-m", "tidelog_runtime.local"), "tidelog-services[local]"),
        ("tidelog-services", ("python", "-m", "tidelog_runtime.demo"), "tidelog-services[local]"),
        (
            "tidelog-services",
            ("python", "-m", "tidelog_pipeline", "check"),
            "tidelog-services[jobs]",
        ),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    requirement: str,
    command: tuple[str, ...],
    names: str,
    environment_with: Callable[[str], Environment],
    tmp_path: Path,
) -> None:
    done = environment_with(requirement).run(*command, work=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install '{names}'")


def test_the_wheel_of_the_client_has_nothing_else(wheels: dict[str, Wheel]) -> None:
    roots = {name.partition("/")[0] for name in wheels["tidelog"].files}
    assert roots == {"tidelog", f"tidelog-{tidelog.__version__}.dist-info"}
    suffixes = {Path(name).suffix for name in wheels["tidelog"].files if "dist-info" not in name}
    assert suffixes == {".py", ".pyi", ".typed"}


def test_the_client_requires_grpc_protobuf_and_codecs(wheels: dict[str, Wheel]) -> None:
    always = {r.name for r in wheels["tidelog"].requirements if r.marker is None}
    assert always == CLIENT_REQUIRES


def test_the_wheel_of_the_services_has_all_of_them_and_the_console(
    wheels: dict[str, Wheel],
) -> None:
    files = wheels["tidelog-services"].files
    roots = {name.partition("/")[0] for name in files if "dist-info" not in name}
    assert roots == {*SERVICES, "tidelog_runtime"}
    assert "tidelog_admin_api/console/index.html" in files


def test_the_services_require_the_client_of_their_own_version(wheels: dict[str, Wheel]) -> None:
    pins = {
        str(r.specifier) for r in wheels["tidelog-services"].requirements if r.name == "tidelog"
    }
    assert pins == {f"=={tidelog.__version__}"}


def test_all_distributions_have_the_version_of_the_client(wheels: dict[str, Wheel]) -> None:
    versions = {name: wheel.version for name, wheel in wheels.items()}
    assert versions == dict.fromkeys(("tidelog", "tidelog-services"), tidelog.__version__)


def test_what_is_documented_to_be_installed_is_tested() -> None:
    assert documented() == set(NAMES)


def test_a_command_of_a_checkout_names_every_distribution_that_it_needs(
    wheels: dict[str, Wheel],
) -> None:
    """No index has the others."""
    of_checkouts = [command for command in install_commands() if command.is_of_a_checkout]
    assert any("[testing]" in command.text for command in of_checkouts)
    for command in of_checkouts:
        named = {Requirement(name).name for name in command.requirements}
        for name in command.requirements:
            needed = {wheel.metadata["Name"] for wheel in required(name, wheels).own()}
            assert (command.text, needed - named) == (command.text, set())


def test_every_extra_is_documented(wheels: dict[str, Wheel]) -> None:
    extras = {
        f"{name}[{extra}]"
        for name, wheel in wheels.items()
        for extra in wheel.metadata.get_all("Provides-Extra", [])
    }
    assert extras == {name for name in NAMES if "[" in name}


def test_make_up_installs_what_a_local_cluster_requires(wheels: dict[str, Wheel]) -> None:
    lock = (ROOT / "requirements-local.lock").read_text()
    pinned = sorted(line.partition("==")[0] for line in lock.splitlines() if line[:1].isalpha())
    assert pinned == required("tidelog-services[local]", wheels).foreign()


def test_a_local_cluster_requires_little(wheels: dict[str, Wheel]) -> None:
    assert size_of(required("tidelog-services[local]", wheels).foreign()) < MAX_LOCAL_BYTES
