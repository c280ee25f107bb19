"""The source trees of two releases: the previous one, from the history of this repository, and this
one."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tidelog.version import __version__

ROOT = Path(__file__).resolve().parents[2]
RELEASES_FILE = ROOT / "deploy" / "releases.toml"
TREES = ROOT / "out" / "releases"
# Where Python packages of clients and services are, in every release so far.
PACKAGE_ROOTS = (
    "libs",
    "services/broker",
    "services/controller",
    "services/admin-api",
    "services/pipeline",
)
GIT_TIMEOUT_S = 120.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class ReleaseError(Exception):
    """A release cannot run here; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class KnownRelease:
    """An entry of `deploy/releases.toml`."""

    version: str
    commit: str


@dataclass(frozen=True, slots=True)
class Release:
    """A source tree whose programs run in this Python environment."""

    version: str
    root: Path

    @property
    def python_path(self) -> str:
        return os.pathsep.join(str(self.root / name) for name in PACKAGE_ROOTS)

    def environment(self, *more_paths: Path) -> dict[str, str]:
        """The environment of a client of this release. `more_paths`: further directories with
        modules."""
        path = os.pathsep.join([self.python_path, *map(str, more_paths)])
        kept = {name: value for name, value in os.environ.items() if not _is_setting(name)}
        return {**kept, "PYTHONPATH": path}


def _is_setting(name: str) -> bool:
    """Whether it would change what a command does."""
    return name.startswith("TIDELOG_")


def this_release() -> Release:
    return Release(__version__, ROOT)


def previous_release(file: Path = RELEASES_FILE, trees: Path = TREES) -> Release:
    """The newest release of the file, with its source tree below `trees`. Raises `ReleaseError`."""
    known = known_releases(file)[-1]
    if known.version == __version__:
        raise ReleaseError(
            f"libs/tidelog/version.py has {__version__}, as the newest release in {file}: give "
            "this source tree the next version"
        )
    return Release(known.version, source_tree(known, trees))


def known_releases(file: Path) -> list[KnownRelease]:
    """Raises `ReleaseError` unless each entry has a version and a full commit."""
    entries = tomllib.loads(file.read_text()).get("release", [])
    known = [KnownRelease(str(e.get("version")), str(e.get("commit"))) for e in entries]
    for one in known:
        if not _VERSION.fullmatch(one.version) or not _COMMIT.fullmatch(one.commit):
            raise ReleaseError(
                f"{file}: {one} needs a version like 0.1.0 and a commit of 40 hexadecimal digits"
            )
    if not known:
        raise ReleaseError(f"{file} has no entry [[release]]")
    return known


def source_tree(release: KnownRelease, trees: Path) -> Path:
    """Extracts the packages of the release, once. Raises `ReleaseError` without its commit."""
    tree = trees / f"{release.version}-{release.commit[:12]}"
    if tree.is_dir():
        return tree
    packed = _packed(release)
    trees.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=trees, prefix=".new-") as scratch:
        new = Path(scratch) / "tree"
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(new, filter="data")
        _describe_installation(new / "libs", release.version)
        try:
            new.rename(tree)
        except OSError:
            # Another process was first.
            if not tree.is_dir():
                raise
    return tree


def _packed(release: KnownRelease) -> bytes:
    """The packages as a tar archive."""
    roots = ("libs", "services")
    try:
        return _git("archive", "--format=tar", release.commit, "--", *roots)
    except FileNotFoundError:
        raise ReleaseError("git is not installed, and the previous release comes from it") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()
        raise ReleaseError(
            f"commit {release.commit} of release {release.version} ({RELEASES_FILE.name}) cannot "
            f"be read from the history of {ROOT}: {reason}. A shallow clone gets it by "
            "git fetch --unshallow; a copy without .git cannot run this"
        ) from None


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=GIT_TIMEOUT_S).stdout


def _describe_installation(libs: Path, version: str) -> None:
    """Adds what an installation has and a source tree has not: 0.1.0 reads its version there."""
    metadata = libs / f"tidelog-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: tidelog\nVersion: {version}\n")
