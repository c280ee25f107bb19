"""The processes below a Spark driver in /proc: the memory of its Python workers, and the processor
time of its parts. Linux only."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.process_figures import rss_mb

POLL_S = 0.5
_WORKER = b"pyspark.daemon"
_TICKS = os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """Returns all descendants of a process."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for directory in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(directory.name))
        if fields:
            children[int(fields[1])].append(int(directory.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        of_this = children[waiting.pop()]
        found += of_this
        waiting += of_this
    return found


def workers_below(pid: int) -> list[int]:
    """Returns Python workers, and the daemon that forks them."""
    return [one for one in below(pid) if _WORKER in _command(one)]


def processor_seconds(pids: Iterable[int]) -> float:
    """Returns the processor time of living processes and of their ended children."""
    fields = (_stat(pid) for pid in pids)
    return sum(sum(map(int, of_one[11:15])) for of_one in fields if of_one) / _TICKS


class PeakMemory:
    """The peak memory of the largest Python worker below this process, during the context.

    A worker that existed before starts with its earlier peak.
    """

    def __init__(self) -> None:
        self._peaks_mb: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def mb(self) -> float:
        return max(self._peaks_mb.values(), default=0.0)

    def _watch(self) -> None:
        while True:
            self._sample()
            if self._ended.wait(POLL_S):
                self._sample()
                return

    def _sample(self) -> None:
        for pid in workers_below(os.getpid()):
            try:
                self._peaks_mb[pid] = rss_mb(pid, "VmHWM")
            except (OSError, ValueError):  # it has just ended
                continue


class Spent:
    """Processor seconds by part since the creation of this object: the JVM of this process, its
    Python workers, and `others`."""

    def __init__(self, others: Mapping[str, Iterable[int]]) -> None:
        self._others = {part: list(pids) for part, pids in others.items()}
        self._before = self._now()

    def seconds(self) -> dict[str, float]:
        now = self._now()
        return {part: round(now[part] - self._before[part], 2) for part in now}

    def _now(self) -> dict[str, float]:
        workers = workers_below(os.getpid())
        jvm = set(below(os.getpid())) - set(workers)
        parts = {"jvm": list(jvm), "workers": workers, **self._others}
        return {part: processor_seconds(pids) for part, pids in parts.items()}


def _stat(pid: int) -> list[str]:
    """Returns the fields from the state on; empty: the process has ended. The name before them may
    contain spaces."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
