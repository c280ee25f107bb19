"""The processes of a local cluster, and descriptions of how they ended."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.process import LocalProcess


@dataclass(slots=True)
class LocalMember:
    """A controller, a broker or the gateway. Its addresses stay the same if possible.

    - `metrics`: empty if metrics are off.
    """

    id: int
    address: str
    metrics: str
    process: LocalProcess


@dataclass(slots=True)
class Members:
    controllers: dict[int, LocalMember] = field(default_factory=dict)
    brokers: dict[int, LocalMember] = field(default_factory=dict)
    gateway: LocalMember | None = None

    def services(self) -> list[LocalMember]:
        return [*self.controllers.values(), *self.brokers.values()]

    def all(self) -> list[LocalMember]:
        return self.services() if self.gateway is None else [*self.services(), self.gateway]


def how_it_ended(process: LocalProcess) -> str:
    status = process.exit_status
    if status is not None and status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def describe_death(process: LocalProcess) -> str:
    return (
        f"{process.name} has exited unexpectedly ({how_it_ended(process)}). The last lines of "
        f"{process.log_path}:\n" + textwrap.indent(process.log_tail() or "(none)", "  ")
    )


async def stop_all(members: Iterable[LocalMember]) -> None:
    await asyncio.gather(*(member.process.stop() for member in members))


def member_of(members: Mapping[int, LocalMember], kind: str, member_id: int) -> LocalMember:
    if member_id not in members:
        known = ", ".join(map(str, members)) or "none before start()"
        raise ClusterError(f"there is no {kind} {member_id}; there are: {known}")
    return members[member_id]
