"""An etcd of several members on this machine, each in its own process."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.addresses import HOST, choose_port
from tidelog_runtime.local.etcd_member import find_etcd
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.metadata.etcd import EtcdStore

START_TIMEOUT_SECONDS = 20.0
# All members share two processors with the rest of the test.
_HEARTBEAT_MS, _ELECTION_MS = 100, 1_000
_QUOTA_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """`name` and `address` (host:port for clients) stay the same over restarts."""

    name: str
    address: str
    process: LocalProcess


class EtcdMembers:
    def __init__(self, members: Sequence[EtcdMember]) -> None:
        self.members = members

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    def at(self, address: str) -> EtcdMember:
        return next(member for member in self.members if member.address == address)

    def resume_all(self) -> None:
        """Resumes paused members, and starts ended ones again."""
        for member in self.members:
            if member.process.running:
                member.process.resume()
            else:
                member.process.start()


@asynccontextmanager
async def running_etcd(
    directory: Path, *, members: int = 3, quota_bytes: int = _QUOTA_BYTES
) -> AsyncIterator[EtcdMembers]:
    """The running members; it is entered once they answer."""
    rng, taken = random.Random(), set[int]()
    ports = [
        (choose_port(None, taken=taken, rng=rng), choose_port(None, taken=taken, rng=rng))
        for _ in range(members)
    ]
    peers = {f"etcd-{i}": f"http://{HOST}:{peer}" for i, (_, peer) in enumerate(ports, 1)}
    found = []
    for (name, peer), (client, _) in zip(peers.items(), ports, strict=True):
        options = {
            "name": name,
            "data-dir": str(directory / name),
            "listen-client-urls": f"http://{HOST}:{client}",
            "advertise-client-urls": f"http://{HOST}:{client}",
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{n}={p}" for n, p in peers.items()),
            "heartbeat-interval": str(_HEARTBEAT_MS),
            "election-timeout": str(_ELECTION_MS),
            "quota-backend-bytes": str(quota_bytes),
            "log-level": "warn",
        }
        arguments = [f"--{option}={value}" for option, value in options.items()]
        process = LocalProcess(
            name,
            [str(find_etcd()), *arguments, "--unsafe-no-fsync"],
            log_path=directory / f"{name}.log",
            environment={k: v for k, v in os.environ.items() if not k.startswith("ETCD_")},
        )
        found.append(EtcdMember(name, f"{HOST}:{client}", process))
    etcd = EtcdMembers(found)
    try:
        for member in found:
            (directory / member.name).mkdir(parents=True, mode=0o700)
            member.process.start()
        await _until_it_answers(etcd)
        yield etcd
    finally:
        await asyncio.gather(*(member.process.kill() for member in found))


async def _until_it_answers(etcd: EtcdMembers) -> None:
    store = EtcdStore(
        etcd.addresses,
        clock=SystemClock(),
        rng=random.Random(),
        request_timeout_ms=round(START_TIMEOUT_SECONDS * 1_000),
    )
    try:
        await store.get("/")
    finally:
        await store.close()


async def etcdctl(etcd: EtcdMembers, *arguments: str) -> str:
    """The output of the command; fails if the command does."""
    process = await asyncio.create_subprocess_exec(
        str(find_etcd().with_name("etcdctl")),
        f"--endpoints={','.join(etcd.addresses)}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
