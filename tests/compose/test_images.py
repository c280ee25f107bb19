"""The images as built, and as they run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import tidelog
from compose.engine import base_images
from compose.stack import OWN_SERVICES, Stack, docker

ONE_OF_EACH = ("broker-1", "controller-1", "admin-api")
# The size that an image adds to its base; Python packages are nearly all of it.
MAX_ADDED_BYTES = 150_000_000
MIB = 1 << 20


def image(stack: Stack, service: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(
        docker("image", "inspect", stack.inspect(service)["Image"])
    )
    return found[0]


@pytest.mark.parametrize("service", OWN_SERVICES)
def test_a_service_runs_as_a_user_without_rights(stack: Stack, service: str) -> None:
    script = "import os; print(os.getuid(), os.getgid())"
    assert stack.inside(service, "python", "-c", script) == (0, "10001 10001\n")
    # The capabilities of the process itself, as the kernel sees them: none now, and none to gain.
    status, output = stack.inside(service, "python", "-c", "print(open('/proc/1/status').read())")
    assert status == 0
    fields = dict(line.split(":\t", 1) for line in output.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.parametrize("service", OWN_SERVICES)
def test_the_root_file_system_is_read_only(stack: Stack, service: str) -> None:
    script = (
        "import errno, pathlib\n"
        "for path in ('/x', '/opt/tidelog/x', '/etc/x'):\n"
        "    try: pathlib.Path(path).write_text('')\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n"
        "pathlib.Path('/tmp/x').write_text('')\n"
    )
    status, output = stack.inside(service, "python", "-c", script)
    assert status == 0, output
    # EACCES would show only that the user lacks the permission.
    assert output.split() == ["EROFS"] * 3


@pytest.mark.parametrize("service", ONE_OF_EACH)
def test_an_image_has_no_tool_that_builds(stack: Stack, service: str) -> None:
    script = (
        "import importlib.util, shutil, sys\n"
        "modules = ('pip', 'setuptools', 'wheel', 'ensurepip', 'hatchling', 'grpc_tools')\n"
        "print([m for m in modules if importlib.util.find_spec(m)])\n"
        "print([p for p in ('pip', 'pip3', 'gcc', 'make') if shutil.which(p)])\n"
    )
    for python in ("python", sys_python(stack, service)):
        assert stack.inside(service, python, "-c", script) == (0, "[]\n[]\n"), python


def sys_python(stack: Stack, service: str) -> str:
    """The interpreter of the base image, outside the environment of the service."""
    script = "import sys; print(sys._base_executable)"
    return stack.inside(service, "python", "-c", script)[1].strip()


@pytest.mark.parametrize("service", ONE_OF_EACH)
def test_an_image_says_what_it_is(stack: Stack, service: str) -> None:
    found = image(stack, service)
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == tidelog.__version__
    assert labels["org.opencontainers.image.revision"]
    assert found["Config"]["StopSignal"] == "SIGTERM"
    status, output = stack.inside(
        service, "python", "-c", "import tidelog; print(tidelog.__version__)"
    )
    assert (status, output.strip()) == (0, tidelog.__version__)


@pytest.mark.parametrize("service", ONE_OF_EACH)
def test_an_image_is_small(
    stack: Stack, service: str, record_property: Callable[[str, object], None]
) -> None:
    base = json.loads(docker("image", "inspect", base_images()["python"]))[0]["Size"]
    size = image(stack, service)["Size"]
    record_property("image_bytes", size)
    print(f"{service}: {size / MIB:.0f} MiB, {(size - base) / MIB:.0f} MiB of them above its base")  # noqa: T201
    assert size - base <= MAX_ADDED_BYTES
