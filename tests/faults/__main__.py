"""`python -m faults`: real faults on real processes, under a load whose history is checked.

Exit status 0: every acknowledged record exists once, every fault had a measured effect, all gaps
were within their bounds, and the cluster was intact again in time. Exit status 1: otherwise."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from faults.catalogue import KINDS, Ability, left_out
from faults.cluster import Cluster, ClusterFailedError
from faults.container_cluster import Containers
from faults.local_cluster import NO_FAKETIME, LocalProcesses
from faults.plan import Plan, make_plan
from faults.report.write import write_report
from faults.result import FULL_MINUTES, FULL_RUNS, Result
from faults.run import FinishedRun, RunFailedError, run
from faults.small_disks import why_no_small_disks
from faults.verdict import judge_runs
from tidelog.rpc.status import UnreachableError
from tidelog_runtime.local import ClusterError

OUT = Path("out/faults.json")
# A partial proof does not replace the file of a full one.
PARTIAL_OUT = Path("out/faults.partial.json")
# Records per second: three runs of six minutes acknowledge more than two million.
RATE = 2_800
LOCAL_RATE = 1_200
SECONDS_A_MINUTE = 60

# A cluster for one run, with a directory of its own.
Clusters = Callable[[Path], AbstractAsyncContextManager[Cluster]]


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    _say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="tidelog-faults-") as scratch:
        directory = options.directory or Path(scratch)
        try:
            status = asyncio.run(_faults(options, seed, directory))
        except (RunFailedError, ClusterFailedError, ClusterError, ValueError) as error:
            _say(f"FAILED: {error}")
            status = 1
        kept = options.out.parent / "faults-failed"
        if not status:
            shutil.rmtree(kept, ignore_errors=True)
        elif options.directory is None:
            _keep_runs(directory, kept)
        return status


def _keep_runs(directory: Path, kept: Path) -> None:
    """Keeps histories and logs, replacing those of an earlier failure: a seed does not reproduce a
    failure."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for one in sorted(directory.glob("run-*")):
        shutil.move(one, kept / one.name)
    _say(f"histories and logs: {kept}")


async def _faults(options: argparse.Namespace, seed: int, directory: Path) -> int:
    asyncio.get_running_loop().set_exception_handler(_handle_exception)
    async with _clusters(options, directory) as (impossible, clusters):
        return await _prove(options, seed, directory, impossible, clusters)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A failed request to a broker that is down is expected, also if its caller no longer waits."""
    if not isinstance(context.get("exception"), UnreachableError):
        loop.default_exception_handler(context)


async def _prove(
    options: argparse.Namespace,
    seed: int,
    directory: Path,
    impossible: dict[str, str],
    clusters: Clusters,
) -> int:
    """`impossible`: the kinds that are left out, each with the reason."""
    result = Result(left_out=impossible)
    possible = [kind for kind in KINDS if kind not in result.left_out]
    seconds = options.minutes * SECONDS_A_MINUTE
    plan = make_plan(possible, runs=options.runs, seconds=seconds, seed=seed, only=options.only)
    result.no_time = plan.no_time
    result.left_out |= dict.fromkeys(plan.no_time, "it does not fit into the time")
    for name, why in result.left_out.items():
        _say(f"left out: {name}: {why}")
    finished = await _runs(plan, directory, options, clusters)
    result.runs = judge_runs([one.seen for one in finished])
    problems = result.problems(
        is_full=_is_full(options),
        needs_all=not options.local,
        bounds_gaps=not options.no_bounds,
        only=options.only,
    )
    page = await asyncio.to_thread(write_report, options.out, result, finished, problems, seed)
    for problem in problems:
        _say(f"PROBLEM: {problem}")
    verdict = "failed" if problems else "all is well"
    if options.no_bounds:
        verdict += ", but gaps were not judged"
    _say(
        f"{verdict}: {result.acknowledged:,} records acknowledged, {result.failed:,} failed, "
        f"{result.unknown:,} of unknown outcome, "
        f"{result.unexplained} unexplained, {result.misblamed} misblamed, "
        f"{len(result.injected_kinds)} kinds of faults, {len(result.left_out)} left out; "
        f"{options.out}, {page}"
    )
    return 1 if problems else 0


async def _runs(
    plan: Plan, directory: Path, options: argparse.Namespace, clusters: Clusters
) -> list[FinishedRun]:
    finished = []
    for number, steps in enumerate(plan.runs, 1):
        _say(f"run {number} of {len(plan.runs)}: {', '.join(step.name for step in steps)}")
        own = directory / f"run-{number}"
        await asyncio.to_thread(own.mkdir, parents=True, exist_ok=True)
        async with clusters(own) as cluster:
            finished.append(await run(cluster, steps, own, f"faults-{number}", options.rate, _say))
    return finished


@asynccontextmanager
async def _clusters(
    options: argparse.Namespace, directory: Path
) -> AsyncIterator[tuple[dict[str, str], Clusters]]:
    """Yields the cluster of each run, and the kinds that it cannot suffer. Local processes are new
    in each run; containers stay for all of them."""
    if options.local:
        why_not = await why_no_small_disks(directory / "probe")
        found = LocalProcesses(directory / "unused", small_disks=not why_not)
        lacking = {Ability.FULL_DISK: why_not, Ability.CLOCK: NO_FAKETIME}
        yield left_out(found.abilities, lacking), partial(_local, small_disks=not why_not)
        return
    cluster = Containers(directory / "containers", options.compose_file)
    try:
        _say("making disks and images")
        await cluster.prepare()
        await cluster.start()

        @asynccontextmanager
        async def composed(_: Path) -> AsyncIterator[Cluster]:
            yield cluster

        yield left_out(cluster.abilities, cluster.lacking), composed
    finally:
        await cluster.stop()


@asynccontextmanager
async def _local(directory: Path, *, small_disks: bool) -> AsyncIterator[Cluster]:
    cluster = LocalProcesses(directory / "cluster", small_disks=small_disks)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def _is_full(options: argparse.Namespace) -> bool:
    return options.runs >= FULL_RUNS and options.minutes >= FULL_MINUTES and not options.only


def _out(options: argparse.Namespace) -> Path:
    is_proof = _is_full(options) and not options.local and not options.no_bounds
    return OUT if is_proof else PARTIAL_OUT


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument(
        "--local", action="store_true", help="processes of this machine, and no containers"
    )
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="of each run")
    parser.add_argument("--runs", type=int, default=FULL_RUNS)
    parser.add_argument("--seed", type=int, help="of the plan; a new one by default")
    parser.add_argument("--only", default="", metavar="NAME", help="one kind, story, or mixed")
    parser.add_argument("--rate", type=int, help="records per second")
    parser.add_argument(
        "--out", type=Path, help=f"instead of {OUT}, or {PARTIAL_OUT} of less than a full proof"
    )
    parser.add_argument(
        "--directory", type=Path, help="keeps histories, logs and data there; new, or empty"
    )
    parser.add_argument(
        "--no-bounds",
        action="store_true",
        help="gaps beyond their bounds are reported, and no failure: for a busy machine",
    )
    parser.add_argument(
        "--compose-file", type=Path, help="instead of docker-compose.yml; its images are there"
    )
    options = parser.parse_args(argv)
    if options.directory is not None and _is_used(options.directory):
        parser.error(
            f"{options.directory} holds something already, an earlier run perhaps; name another "
            "directory, or empty this one"
        )
    if options.minutes <= 0 or options.runs < 1:
        parser.error("--minutes is more than 0, and --runs at least 1")
    if options.out is None:
        options.out = _out(options)
    if options.rate is None:
        options.rate = LOCAL_RATE if options.local else RATE
    return options


def _is_used(directory: Path) -> bool:
    return directory.exists() and (not directory.is_dir() or any(directory.iterdir()))


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
