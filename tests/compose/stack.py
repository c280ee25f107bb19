"""The cluster of docker-compose.yml, with its own project name and ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from compose.engine import ROOT, EngineError, open_files, prepare, run

PROJECT = "tidelog-test"
# All containers start at once on two cores, with all imports.
START_TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 1_200.0
COMMAND_TIMEOUT_S = 120.0
POLL_S = 0.5

ETCD = ("etcd-1", "etcd-2", "etcd-3")
CONTROLLERS = ("controller-1", "controller-2")
BROKERS = ("broker-1", "broker-2", "broker-3")
GATEWAY = "admin-api"
OWN_SERVICES = (*CONTROLLERS, *BROKERS, GATEWAY)

T = TypeVar("T")


def until(check: Callable[[], T], what: str, timeout_s: float) -> T:
    """Returns the first true value of `check`; an exception counts as not yet."""
    deadline = time.monotonic() + timeout_s
    seen: object = "nothing yet"
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
            seen = found
        except (EngineError, httpx.HTTPError, LookupError, ValueError) as error:
            seen = error
        time.sleep(POLL_S)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; last: {seen!r}")


class Stack:
    """`up` builds and starts the cluster; `down` removes it and its volumes."""

    def __init__(self) -> None:
        self._compose: list[str] = []
        names = (*BROKERS, *CONTROLLERS, GATEWAY, "prometheus", "grafana")
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._environment = {_port_variable(name): str(port) for name, port in ports.items()}
        self._environment |= {"TIDELOG_TAG": "test", **open_files()}
        # The addresses for clients on this machine.
        self.brokers = {
            number: f"127.0.0.1:{ports[name]}" for number, name in enumerate(BROKERS, start=1)
        }
        self.gateway = httpx.Client(
            base_url=f"http://127.0.0.1:{ports[GATEWAY]}",
            timeout=60.0,
            headers={"X-Tidelog-Requested-By": "compose-test"},
        )
        self.prometheus_url = f"http://127.0.0.1:{ports['prometheus']}"

    def up(self) -> None:
        """Returns once all health checks succeed."""
        self._compose = [*prepare(), "--project-name", PROJECT]
        # Remove leftovers of an earlier run.
        self._remove()
        self.compose("build", timeout_s=BUILD_TIMEOUT_S)
        self.compose("up", "--detach", timeout_s=START_TIMEOUT_S)
        self.wait_healthy((*ETCD, *OWN_SERVICES), START_TIMEOUT_S)

    def down(self) -> None:
        self.gateway.close()
        if self._compose:
            self._remove()

    def _remove(self) -> None:
        """Names the profiles: Compose v2 leaves containers of other profiles running."""
        profiles = ("--profile", "monitoring", "--profile", "pipeline")
        self.compose(*profiles, "down", "--volumes", "--remove-orphans")

    def compose(
        self,
        *arguments: str,
        timeout_s: float = COMMAND_TIMEOUT_S,
        stdin: str | None = None,
    ) -> str:
        command = [*self._compose, *arguments]
        return run(command, timeout_s=timeout_s, stdin=stdin, env=self._environment).stdout

    def tidelog(self, *arguments: str, stdin: str = "") -> str:
        """Runs the command line in its own container within the cluster's network."""
        return self.compose("run", "--rm", "-T", "tools", *arguments, stdin=stdin)

    def typed(self, line: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as users type it beside docker-compose.yml, against this cluster."""
        line = re.sub(r"^docker-compose(?= )", shlex.join(self._compose), line)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TIDELOG_BOOTSTRAP": ",".join(self.brokers.values()),
            **self._environment,
        }
        command = ["sh", "-c", line]
        return run(command, timeout_s=COMMAND_TIMEOUT_S, env=environment, check=False)

    def container(self, service: str) -> str:
        """The id of its container, also if that does not run."""
        found = run(
            [
                *("docker", "ps", "--all", "--quiet", "--no-trunc"),
                *("--filter", f"label=com.docker.compose.project={PROJECT}"),
                *("--filter", f"label=com.docker.compose.service={service}"),
                *("--filter", "label=com.docker.compose.oneoff=False"),
            ],
            timeout_s=COMMAND_TIMEOUT_S,
        ).stdout.split()
        if len(found) != 1:
            raise EngineError(f"{service} has {len(found)} containers, and should have one")
        return found[0]

    def inspect(self, service: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(docker("inspect", self.container(service)))
        return found[0]

    def health(self, service: str) -> str:
        state = self.inspect(service)["State"]
        return str(state.get("Health", {}).get("Status", state["Status"]))

    def wait_healthy(self, services: Sequence[str], timeout_s: float) -> None:
        def unwell() -> dict[str, str]:
            found = {service: self.health(service) for service in services}
            return {service: health for service, health in found.items() if health != "healthy"}

        def check() -> bool:
            if found := unwell():
                raise LookupError(str(found))
            return True

        until(check, "every health check is answered well", timeout_s)

    def inside(self, service: str, *command: str) -> tuple[int, str]:
        """Exit status and output."""
        done = run(
            ["docker", "exec", self.container(service), *command],
            timeout_s=COMMAND_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def signal(self, service: str, name: str) -> None:
        docker("kill", f"--signal={name}", self.container(service))

    def start(self, service: str) -> None:
        docker("start", self.container(service))

    def get(self, path: str) -> Any:
        answer = self.gateway.get(path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self.gateway.post(path, json=body)
        assert answer.is_success, f"POST {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/v1/topics/{topic}/partitions")["items"]
        return found

    def wait_whole(self, topic: str, timeout_s: float) -> None:
        """Waits until every partition has a leader and all replicas in sync."""

        def check() -> bool:
            unwell = [p for p in self.partitions(topic) if p["health"] != "ok"]
            if unwell:
                raise LookupError(str([(p["partition"], p["health"]) for p in unwell]))
            return True

        until(check, f"all replicas of {topic} are in sync", timeout_s)

    def save_logs(self, directory: Path) -> None:
        """Saves the logs of every container."""
        directory.mkdir(parents=True, exist_ok=True)
        for service in (*ETCD, *OWN_SERVICES):
            done = run(
                ["docker", "logs", "--timestamps", self.container(service)],
                timeout_s=COMMAND_TIMEOUT_S,
                check=False,
            )
            (directory / f"{service}.log").write_text(done.stdout + done.stderr)


def docker(*arguments: str) -> str:
    return run(["docker", *arguments], timeout_s=COMMAND_TIMEOUT_S).stdout


def _port_variable(service: str) -> str:
    name = "gateway" if service == GATEWAY else service
    return f"TIDELOG_{name.upper().replace('-', '_')}_PORT"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


LOGS = ROOT / "out" / "compose"
