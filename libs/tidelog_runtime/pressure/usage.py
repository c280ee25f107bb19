"""Measures this process's use of its machine, from /proc and its control group.

Blocks for milliseconds if there are thousands of files. A value that cannot be read is 0, which
means unknown.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tidelog_runtime.pressure.detection import Usage
from tidelog_runtime.pressure.process_pauses import PauseMeter
from tidelog_runtime.pressure.segments import measure_segments

_PROC = Path("/proc/self")
_CGROUP = Path("/sys/fs/cgroup")
_ESTABLISHED = "01"
# A higher limit of a control group means that there is none.
_NO_LIMIT_BYTES = 1 << 60
# Sockets are counted by peer only above this number, because that reads a line for each.
MANY_SOCKETS = 200


def measure_usage(ports: Collection[int] = (), standstill: PauseMeter | None = None) -> Usage:
    """Measures the process.

    - `ports`: the ports on which it listens.
    - `standstill`: the meter of this process.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files, sockets = _open_files(limit)
    peer, connections = _top_peer(ports) if len(sockets) >= MANY_SOCKETS else ("", 0)
    memory, memory_limit = _memory()
    throttled, periods = _throttling()
    return Usage(
        open_files=open_files,
        open_files_limit=limit,
        sockets=len(sockets),
        top_peer=peer,
        top_peer_connections=connections,
        memory_bytes=memory,
        memory_limit_bytes=memory_limit,
        cpu_wait_ms=_cpu_wait_ms(),
        throttled_periods=throttled,
        periods=periods,
        segments=measure_segments(sockets, ports),
        stood_still_ms=0 if standstill is None else standstill.total_ms,
    )


def _open_files(limit: int) -> tuple[int, list[int]]:
    """Returns the number of open files, and the descriptors of the sockets among them.

    Counting needs a free descriptor; without one, all of `limit` are in use.
    """
    try:
        links = list((_PROC / "fd").iterdir())
    except OSError:
        return limit, []
    sockets: list[int] = []
    for link in links:
        with suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                sockets.append(int(link.name))
    return len(links), sockets


def _top_peer(ports: Collection[int]) -> tuple[str, int]:
    """Returns the address with the most connections to these ports, and their number.

    The tables list the connections of all processes in the network namespace.
    """
    peers: Counter[str] = Counter()
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            peers.update(established_peers((_PROC / table).read_text().splitlines()[1:], ports))
    return peers.most_common(1)[0] if peers else ("", 0)


def established_peers(lines: Iterable[str], ports: Collection[int]) -> Iterator[str]:
    """Yields the remote address of each established connection to one of these local ports."""
    for line in lines:
        fields = line.split()
        if len(fields) < 4 or fields[3] != _ESTABLISHED:
            continue
        if int(fields[1].rpartition(":")[2], 16) in ports:
            yield _address(fields[2].partition(":")[0])


def _address(hexadecimal: str) -> str:
    """Returns the address in a line of /proc/net/tcp or tcp6 as text.

    >>> _address("0100007F"), _address("0000000000000000FFFF00000100007F")
    ('127.0.0.1', '127.0.0.1')
    """
    # The kernel writes words of four bytes, each in the machine's byte order.
    last = bytes.fromhex(hexadecimal[-8:])[::-1]
    is_mapped = len(hexadecimal) == 32 and hexadecimal[16:24].upper() in ("FFFF0000", "0000FFFF")
    if len(hexadecimal) == 8 or is_mapped:
        return ".".join(map(str, last))
    words = [bytes.fromhex(hexadecimal[i : i + 8])[::-1].hex() for i in range(0, 32, 8)]
    joined = "".join(words)
    return ":".join(joined[i : i + 4].lstrip("0") or "0" for i in range(0, 32, 4))


def _memory() -> tuple[int, int]:
    """Returns bytes in use and their limit: of `ulimit -v` and the control group's limit the one
    of which more is in use."""
    page = resource.getpagesize()
    try:
        size, resident = (int(n) * page for n in (_PROC / "statm").read_text().split()[:2])
    except (OSError, ValueError):
        return 0, 0
    limits: list[tuple[int, int]] = []
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        limits.append((size, limit))
    group = _group_value("memory.max")
    if 0 < group < _NO_LIMIT_BYTES:
        limits.append((resident, group))
    return max(limits, key=lambda used: used[0] / used[1], default=(resident, 0))


def _group_value(name: str) -> int:
    try:
        text = (_group() / name).read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _group() -> Path:
    """Returns this process's directory of cgroup v2."""
    try:
        lines = (_PROC / "cgroup").read_text().splitlines()
    except OSError:
        return _CGROUP
    paths = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    return _CGROUP / paths[0].lstrip("/") if paths else _CGROUP


def _throttling() -> tuple[int, int]:
    try:
        lines = (_group() / "cpu.stat").read_text().splitlines()
    except OSError:
        return 0, 0
    values = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(values.get("nr_throttled", 0)), int(values.get("nr_periods", 0))


def _cpu_wait_ms() -> int:
    try:
        return int((_PROC / "schedstat").read_text().split()[1]) // 1_000_000
    except (OSError, IndexError, ValueError):
        return 0
