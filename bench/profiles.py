"""Profiles of processes, sampled from outside by py-spy as collapsed stacks, which flame graph
viewers open.

`python -m bench.profiles FILE...` prints the most expensive functions of each."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

PY_SPY = Path(sys.executable).with_name("py-spy")
SAMPLES_A_SECOND = 200
SHOWN = 45
END_S = 20.0


class Hot(NamedTuple):
    """A function and its shares of all samples.

    - `own`: in the function itself.
    - `whole`: including its callees.
    """

    function: str
    own: float
    whole: float


def hottest(lines: Iterable[str]) -> tuple[int, list[Hot]]:
    """Returns the number of samples in collapsed stacks, and the functions by `whole`.

    >>> hottest(["main (a.py:1);work (b.py:7) 3", "main (a.py:2) 1"])
    (4, [Hot(function='main (a.py)', own=0.25, whole=1.0), Hot(function='work (b.py)', own=0.75, \
whole=0.75)])
    """
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rstrip().rpartition(" ")
        frames = [_function(frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    samples = sum(own.values())
    found = [Hot(name, own[name] / samples, count / samples) for name, count in whole.items()]
    return samples, sorted(found, key=lambda hot: (-hot.whole, -hot.own, hot.function))


def _function(frame: str) -> str:
    """Returns the frame without its line number."""
    name, opened, place = frame.partition(" (")
    path, _, line = place.rstrip(")").rpartition(":")
    return f"{name} ({path})" if opened and line.isdigit() else frame


@asynccontextmanager
async def profiled(directory: Path, step: str, pids: Mapping[str, int]) -> AsyncIterator[None]:
    """Samples processes during the context; only samples on the processor count.

    - `pids`: processes by name.
    """
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    samplers = []
    for name, pid in pids.items():
        path = directory / f"{step.replace(' ', '-')}-{name}.txt"
        samplers.append(
            await asyncio.create_subprocess_exec(
                PY_SPY,
                "record",
                *("--pid", str(pid), "--format", "raw", "--output", str(path)),
                *("--rate", str(SAMPLES_A_SECOND), "--nonblocking", "--duration", "3600"),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        )
    try:
        yield
    finally:
        for sampler in samplers:
            if sampler.returncode is None:
                sampler.send_signal(signal.SIGINT)
        async with asyncio.timeout(END_S):
            await asyncio.gather(*(sampler.wait() for sampler in samplers))


def main(paths: Iterable[Path]) -> None:
    for path in paths:
        samples, found = hottest(path.read_text().splitlines())
        sys.stdout.write(f"{path.name}: threads ran for {samples / SAMPLES_A_SECOND:.1f} s\n")
        for hot in found[:SHOWN]:
            sys.stdout.write(f"  {hot.whole:6.1%} {hot.own:6.1%}  {hot.function}\n")


if __name__ == "__main__":
    main(map(Path, sys.argv[1:]))
