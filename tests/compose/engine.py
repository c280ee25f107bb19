"""The container engine and the base images, which a composed cluster needs.

Images are pulled from a registry. Where no registry can be reached, `TIDELOG_STANDIN_IMAGES` may
name a program that makes stand-ins under the same tags, and starts the engine if it is missing:
`PROGRAM python=TAG etcd=TAG prometheus=TAG`. `python -m compose.engine` does no more than that. Its
status is CANNOT_BE_HAD if this machine lacks them and no program is named."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STANDIN_VARIABLE = "TIDELOG_STANDIN_IMAGES"
# As docker-compose.yml requests.
OPEN_FILES = 65_536
PULL_TIMEOUT_S = 180
STANDIN_TIMEOUT_S = 1_800
# Neither 1, the status of Python after any exception, nor one of those of `timeout` and shells.
CANNOT_BE_HAD = 3

_MISSING = (
    "the suite needs a Docker engine and docker-compose, and reaches none: install and start them "
    f"(on Debian: docker.io, docker-compose), or let {STANDIN_VARIABLE} name a program that does"
)


class EngineError(Exception):
    """What is missing, and what to do."""


class CannotBeHadError(EngineError):
    """This machine lacks it, and no program is named that would provide it."""


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """The output of a command. With `check` a failure raises `EngineError` with that output."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            input=stdin,
            env={**os.environ, **env} if env else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command)} was not done within {timeout_s:g} s") from error
    if check and done.returncode != 0:
        raise EngineError(
            f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done


def base_images() -> dict[str, str]:
    """Kind to tag, as the Dockerfiles and docker-compose.yml name them."""
    dockerfile = (ROOT / "services/broker/Dockerfile").read_text()
    compose = (ROOT / "docker-compose.yml").read_text()
    found = {
        "python": re.search(r"^ARG BASE_IMAGE=(\S+)$", dockerfile, re.MULTILINE),
        "etcd": re.search(r"^\s+image: (\S*etcd:\S+)$", compose, re.MULTILINE),
        "prometheus": re.search(r"^\s+image: (\S*prometheus:\S+)$", compose, re.MULTILINE),
    }
    return {kind: match[1] for kind, match in found.items() if match}


def prepare() -> list[str]:
    """Makes sure that the engine runs and has the base images; returns the command of Compose.

    Raises `EngineError`."""
    if not _answers():
        _make_stand_ins({})
    if not _answers():
        raise _lack(_MISSING)
    missing = {kind: tag for kind, tag in base_images().items() if not _is_here(tag)}
    unreachable = _unreachable(missing)
    if unreachable:
        _make_stand_ins(unreachable)
    absent = [tag for tag in unreachable.values() if not _is_here(tag)]
    if absent:
        raise _lack(f"no registry gives {', '.join(absent)}, and nothing made stand-ins")
    return compose_command()


def open_files() -> dict[str, str]:
    """The variable for docker-compose.yml if the limit of this machine is below the one there, as
    in some sandboxes. An engine that this program starts gets it, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unbound = hard == resource.RLIM_INFINITY
    return {} if is_unbound or hard >= OPEN_FILES else {"TIDELOG_NOFILE": str(hard)}


def compose_command() -> list[str]:
    """Compose v2 if it is installed, else docker-compose."""
    if run(["docker", "compose", "version"], timeout_s=30, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise _lack(_MISSING)


def _lack(message: str) -> EngineError:
    """The error for what is missing. If a program was named, it has failed to provide it."""
    return EngineError(message) if _standin_program() else CannotBeHadError(message)


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return run(["docker", "info"], timeout_s=60, check=False).returncode == 0


def _is_here(tag: str) -> bool:
    return run(["docker", "image", "inspect", tag], timeout_s=60, check=False).returncode == 0


def _unreachable(images: dict[str, str]) -> dict[str, str]:
    """The images that cannot be pulled.

    All are tried at once: a registry that does not answer costs the time of one."""
    with ThreadPoolExecutor() as pool:
        pulled = list(pool.map(_pull, images.values()))
    return {kind: images[kind] for kind, done in zip(images, pulled, strict=True) if not done}


def _pull(tag: str) -> bool:
    try:
        pulled = run(["docker", "pull", "--quiet", tag], timeout_s=PULL_TIMEOUT_S, check=False)
    except EngineError:
        return False
    return pulled.returncode == 0


def _standin_program() -> str:
    return os.environ.get(STANDIN_VARIABLE, "")


def _make_stand_ins(tags: dict[str, str]) -> None:
    program = _standin_program()
    if not program:
        return
    run([program, *(f"{kind}={tag}" for kind, tag in tags.items())], timeout_s=STANDIN_TIMEOUT_S)


if __name__ == "__main__":
    try:
        prepare()
    except CannotBeHadError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(CANNOT_BE_HAD)
    except EngineError as error:
        sys.exit(str(error))
