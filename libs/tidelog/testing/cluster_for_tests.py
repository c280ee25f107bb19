"""A cluster for tests, controlled by calls that tests with and without async can make."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER

if TYPE_CHECKING:
    from tidelog_runtime.local.cluster import LocalCluster

_Result = TypeVar("_Result")

# Dead processes lose their lease, and lagging replicas leave the ISR, within seconds.
LEASE_TTL_SECONDS = 2
LAG_TIME_MAX_MS = 2_000
MAX_BROKERS = 9


def share_ports(environment: Mapping[str, str] = os.environ) -> None:
    """Makes each process of pytest-xdist choose ports that the others do not: a free port is bound
    only a moment after it is chosen."""
    from tidelog_runtime.local import addresses

    worker = environment.get("PYTEST_XDIST_WORKER", "")
    if worker.removeprefix("gw").isdecimal():
        workers = int(environment["PYTEST_XDIST_WORKER_COUNT"])
        addresses.choose_every(workers, int(worker.removeprefix("gw")))


class TestCluster:
    """A cluster of separate processes: etcd, a controller and brokers. Each call waits until it is
    done, and raises `ClusterError` if the cluster does not recover.

    - `bootstrap`: the addresses for `Producer`, `Consumer` and `Admin`.
    """

    # pytest must not collect it.
    __test__ = False

    def __init__(self, directory: Path, brokers: int) -> None:
        from tidelog_runtime.local.cluster import LocalCluster

        # Processes end with the thread that started them, so one thread starts and stops all.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidelog-testing")
        self._stopped: set[int] = set()
        self._paused: set[int] = set()
        self._cluster: LocalCluster = LocalCluster(
            directory,
            brokers=brokers,
            controllers=1,
            broker_config={
                "lease_ttl_seconds": LEASE_TTL_SECONDS,
                "replica_lag_time_max_ms": LAG_TIME_MAX_MS,
                "state_changes_topic": False,
            },
            controller_config={
                "lease_ttl_seconds": LEASE_TTL_SECONDS,
                "state_changes_topic": False,
            },
            usual_ports=False,
        )

    def start(self) -> None:
        self._wait(self._start)

    async def _start(self) -> None:
        await self._cluster.start()
        await self._cluster.ready()

    def stop(self) -> None:
        """Ends all processes."""
        try:
            self._wait(self._cluster.stop)
        finally:
            self._thread.shutdown()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def broker_ids(self) -> Sequence[int]:
        return self._cluster.broker_ids

    @property
    def directory(self) -> Path:
        """Data and logs of all processes."""
        return self._cluster.directory

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Returns the id of the broker that leads a partition. Raises UNKNOWN_TOPIC_OR_PARTITION,
        and LEADER_NOT_AVAILABLE if there is none."""
        from tidelog.client import SyncAdmin

        with SyncAdmin(self.bootstrap) as admin:
            partitions = {p.partition: p for p in admin.describe_topic(topic).partitions}
        found = partitions.get(partition)
        if found is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has the partitions 0 to {len(partitions) - 1}, not {partition}",
            )
        if found.leader == NO_LEADER:
            raise TidelogError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}/{partition} has no leader now; try again"
            )
        return found.leader

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kills the broker that leads a partition; returns its id."""
        leader = self.leader_of(topic, partition)
        self.kill(leader)
        return leader

    def kill(self, broker_id: int) -> None:
        """Kills a broker by SIGKILL. Its partitions get other leaders within seconds."""
        self._wait(lambda: self._cluster.kill(self._known(broker_id)))
        self._stopped.add(broker_id)
        self._paused.discard(broker_id)

    def stop_broker(self, broker_id: int) -> None:
        """Stops a broker in order: it transfers its leaders before."""
        self._wait(lambda: self._cluster.stop_broker(self._known(broker_id)))
        self._stopped.add(broker_id)
        self._paused.discard(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stops the process by SIGSTOP: it answers nothing, and its connections stay open."""
        self._cluster.pause(self._known(broker_id))
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        self._cluster.resume(self._known(broker_id))
        self._paused.discard(broker_id)

    def restart(self, broker_id: int) -> None:
        """Starts a broker that was killed or stopped; a running one is stopped before."""
        if self._known(broker_id) not in self._stopped:
            self.stop_broker(broker_id)
        self._wait(lambda: self._start_again(broker_id))
        self._stopped.discard(broker_id)

    async def _start_again(self, broker_id: int) -> None:
        self._cluster.start_broker(broker_id)
        await self._cluster.ready()

    def heal(self) -> None:
        """Resumes and starts all brokers that a test has paused, killed or stopped."""
        for broker_id in sorted(self._paused):
            self.resume(broker_id)
        for broker_id in sorted(self._stopped):
            self.restart(broker_id)
        # A paused broker may have lost its lease.
        self._wait(self._cluster.ready)

    def log_tails(self) -> dict[str, str]:
        """Returns the last lines of each process's log."""
        return {process.name: process.log_tail() for process in self._cluster.processes()}

    def _known(self, broker_id: int) -> int:
        if broker_id not in self.broker_ids:
            raise ValueError(
                f"there is no broker {broker_id}; the cluster has {list(self.broker_ids)}"
            )
        return broker_id

    def _wait(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        return self._thread.submit(lambda: asyncio.run(work())).result()
