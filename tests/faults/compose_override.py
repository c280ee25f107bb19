"""The changes of a run to docker-compose.yml, as a second file beside it. Pure.

The cluster is that of its users, except for the location of the data: each broker's data are on a
small disk of its own that can be filled, and that this process can read. Restart policies are off,
because they would start what a fault has stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

FAKETIME_TAG = "faketime"
FAKETIME_DIR = "/faketime"
FAKETIME_FILE = f"{FAKETIME_DIR}/offset"
# Where Debian's package installs it, by the machine's architecture.
FAKETIME_LIBRARY = "/usr/local/lib/libfaketime.so.1"
DATA_DIR = "/var/lib/tidelog"
# Docker would give the free address of a stopped container to another one that starts meanwhile,
# and packets for the first would reach the second.
SUBNET = "10.213.77.0/24"
FIRST_ADDRESS = 100
# The addresses of second processes with the id of a broker.
FIRST_SECOND_ADDRESS = 200

# Retention runs several times while a clock is wrong.
RETENTION_CHECK_INTERVAL_MS = 1_000

FAKETIME_DOCKERFILE = f"""\
ARG BROKER_IMAGE
FROM $BROKER_IMAGE
USER root
RUN apt-get update -qq \\
 && apt-get install -y -qq --no-install-recommends libfaketime \\
 && rm -rf /var/lib/apt/lists/* \\
 && ln -s "$(find /usr/lib -name libfaketime.so.1)" {FAKETIME_LIBRARY}
USER 10001:10001
"""


def override(
    disks: Mapping[str, Path],
    services: Sequence[str],
    clocks: Mapping[str, Path] | None,
    faketime_image: str,
    user: str = "",
) -> str:
    """The override file, as JSON, which is YAML as well.

    `disks`: the data directory of each broker.
    `clocks`: the directory of each broker's clock file; None: all use the clock of the machine.
    `user`: the owner of these directories, as whom brokers run; empty: the image's own."""
    changed: dict[str, dict[str, object]] = {
        name: {"restart": "no", "networks": {"default": {"ipv4_address": address}}}
        for name, address in addresses(services).items()
    }
    for broker, directory in disks.items():
        volumes = [f"{directory}:{DATA_DIR}"]
        environment = {"TIDELOG_RETENTION_CHECK_INTERVAL_MS": str(RETENTION_CHECK_INTERVAL_MS)}
        if clocks is not None:
            volumes.append(f"{clocks[broker]}:{FAKETIME_DIR}:ro")
            changed[broker]["image"] = faketime_image
            environment |= clock_environment(FAKETIME_LIBRARY, FAKETIME_FILE)
        changed[broker]["environment"] = environment
        changed[broker]["volumes"] = volumes
        if user:
            changed[broker]["user"] = user
    network = {"default": {"ipam": {"config": [{"subnet": SUBNET}]}}}
    return json.dumps({"services": changed, "networks": network}, indent=2)


def clock_environment(library: str, file: str) -> dict[str, str]:
    """The environment of a process whose wall clock that file sets."""
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": file,
        # Only the wall clock is changed: intervals use the monotonic clock.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "1",
    }


def addresses(services: Sequence[str]) -> dict[str, str]:
    """Above the addresses that the engine assigns."""
    return {name: _address(number) for number, name in enumerate(services, FIRST_ADDRESS)}


def second_address(number: int) -> str:
    return _address(FIRST_SECOND_ADDRESS + number)


def _address(number: int) -> str:
    return f"{SUBNET.rpartition('.')[0]}.{number}"


def clock_setting(ahead_s: int) -> str:
    """The setting in the format of libfaketime."""
    return f"{ahead_s:+d}\n"
