"""Environments that have a distribution of this repository and nothing but what it requires.

The wheels are built and installed as a user gets them. The packages of others are links to those of
the running interpreter, which come from the locks. Which of them are linked follows from the
metadata alone, so a requirement that is not declared is missing."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from importlib.metadata import PackagePath, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from documented import ROOT, pages

TIMEOUT_SECONDS = 240
# pip downloads 450 MB for Spark.
INSTALL_TIMEOUT_SECONDS = 900
LOCKS = ("requirements.lock", "requirements-spark.lock")
# Records of decisions quote former commands.
_NO_DOCUMENTATION = "adr"


@dataclass(frozen=True, slots=True)
class InstallCommand:
    """A documented `pip install`. `requirements`: such as tidelog[cli]."""

    text: str
    requirements: frozenset[str]

    @property
    def is_of_a_checkout(self) -> bool:
        return any(word.strip("'").startswith(".") for word in self.text.split())


def install_commands() -> list[InstallCommand]:
    """Returns the commands of all pages that install distributions of this repository."""
    texts = [
        text
        for page in pages()
        if page.parent.name != _NO_DOCUMENTATION
        for text in re.findall(r"`pip install ([^`]+)`", page.read_text())
    ]
    return [InstallCommand(text, frozenset(map(_requirement, text.split()))) for text in texts]


def _requirement(word: str) -> str:
    """
    >>> _requirement("'.[cli]'"), _requirement("./services")
    ('tidelog[cli]', 'tidelog-services')
    """
    return re.sub(r"^\.", "tidelog", word.strip("'").replace("./", "tidelog-"))


def documented() -> set[str]:
    """What `pip install` is documented to install, such as tidelog[cli]."""
    return {name for command in install_commands() for name in command.requirements}


@dataclass(frozen=True, slots=True)
class Wheel:
    path: Path

    @property
    def files(self) -> list[str]:
        with ZipFile(self.path) as archive:
            return archive.namelist()

    @property
    def metadata(self) -> Message:
        with ZipFile(self.path) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name))

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])

    @property
    def requirements(self) -> list[Requirement]:
        return [Requirement(text) for text in self.metadata.get_all("Requires-Dist", [])]


def built_wheels(directory: Path) -> dict[str, Wheel]:
    """Returns the distributions of this repository by their names."""
    command = [*_PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    _run([*command, "--wheel-dir", str(directory), ".", "./services"], cwd=ROOT)
    wheels = [Wheel(path) for path in directory.glob("*.whl")]
    return {canonicalize_name(wheel.metadata["Name"]): wheel for wheel in wheels}


@dataclass(slots=True)
class Required:
    """What a requirement needs, by its metadata: names of distributions, and the extras of each."""

    wheels: dict[str, Wheel]
    extras: dict[str, set[str]] = field(default_factory=dict)

    def add(self, requirement: Requirement) -> None:
        name = canonicalize_name(requirement.name)
        version = self._version(name)
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} is required, and the lock has {version}"
        )
        # The empty extra is what is required in any case.
        known = self.extras.setdefault(name, set())
        for extra in {"", *requirement.extras} - known:
            known.add(extra)
            for each in self._requirements(name):
                if _applies(each, extra):
                    self.add(each)

    def foreign(self) -> list[str]:
        return sorted(name for name in self.extras if name not in self.wheels)

    def own(self) -> list[Wheel]:
        return [wheel for name, wheel in self.wheels.items() if name in self.extras]

    def _version(self, name: str) -> str:
        return self.wheels[name].version if name in self.wheels else distribution(name).version

    def _requirements(self, name: str) -> list[Requirement]:
        if name in self.wheels:
            return self.wheels[name].requirements
        return [Requirement(text) for text in distribution(name).requires or ()]


def _applies(requirement: Requirement, extra: str) -> bool:
    if requirement.marker is None:
        return not extra
    of_extra = requirement.marker.evaluate({"extra": extra})
    return of_extra if not extra else of_extra and not requirement.marker.evaluate({"extra": ""})


def required(requirement: str, wheels: dict[str, Wheel]) -> Required:
    found = Required(wheels)
    found.add(Requirement(requirement))
    return found


def files_of(name: str) -> Iterator[tuple[PackagePath, Path]]:
    """Files of an installed distribution, by their place in `site-packages`. Its commands, which
    are elsewhere, are left out."""
    for path in distribution(name).files or ():
        if path.parts[0] != "..":
            yield path, Path(str(path.locate()))


def size_of(names: list[str]) -> int:
    """Bytes on the disk."""
    return sum(file.stat().st_size for name in names for _, file in files_of(name) if file.exists())


@dataclass(frozen=True, slots=True)
class Environment:
    """`python`: its interpreter."""

    directory: Path
    required: Required

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def run(self, *command: str, work: Path) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment in the directory `work`."""
        path = self.directory / "bin" / command[0]
        return subprocess.run(
            [str(path), *command[1:]],
            cwd=work,
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")},
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )


def new_environment(directory: Path, needs: Required) -> Environment:
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    environment = Environment(directory, needs)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in needs.foreign():
        for path, source in files_of(name):
            target = packages / path
            if source.exists() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)
    wheels = [str(wheel.path) for wheel in needs.own()]
    install = ["--python", str(environment.python), "install", "--no-deps", "--no-index"]
    _run([*_PIP, *install, *wheels], cwd=directory)
    return environment


def locked() -> list[str]:
    """Returns the versions of the locks, without hashes: pip would require those of wheels, too."""
    pins = {
        pin
        for lock in LOCKS
        for pin in re.findall(r"^[\w.-]+==\S+", (ROOT / lock).read_text(), re.M)
    }
    return sorted(pins)


def lowest(wheel: Wheel) -> list[str]:
    """Returns the lowest versions that a distribution declares to work with, without its extras."""
    return [
        f"{requirement.name}=={bound.version}"
        for requirement in wheel.requirements
        if requirement.marker is None
        for bound in requirement.specifier
        if bound.operator == ">="
    ]


def install_by_pip(
    directory: Path, requirement: str, wheels: dict[str, Wheel], constraints: Iterable[str]
) -> Environment:
    """Returns a new environment in which pip has resolved the requirement: from wheels of this
    repository, and packages of the index that meet the constraints."""
    directory.mkdir()
    environment = Environment(directory / "environment", required(requirement, wheels))
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment.directory)
    versions = directory / "constraints.txt"
    versions.write_text("".join(f"{each}\n" for each in constraints))
    name, bracket, extra = requirement.partition("[")
    command = [
        *(*_PIP, "--python", str(environment.python), "install", "--constraint", str(versions)),
        *(str(wheel.path) for wheel in environment.required.own() if wheel is not wheels[name]),
        f"{wheels[name].path}{bracket}{extra}",
    ]
    _run(command, cwd=directory, timeout_seconds=INSTALL_TIMEOUT_SECONDS)
    return environment


_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _run(command: list[str], cwd: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    done = subprocess.run(
        command, cwd=cwd, check=False, capture_output=True, text=True, timeout=timeout_seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
