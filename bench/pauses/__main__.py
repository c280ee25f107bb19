"""`make bench-pauses` (`python -m bench.pauses`): the longest pause of a service's event loop under
the largest and the most expensive request of every RPC and of the gateway, and of a consumer's loop
while it decodes the most expensive batches. Each value is the median of five rounds.

Exit status 1: a service's own pause is longer than 50 ms, or a request that must be valid was
rejected. If a request keeps all services of this machine busy, a pause includes the time that a
service waits for a processor; an own pause is the processor time that the service used meanwhile. A
disk that lets the loop wait is only in the elapsed time: of this, the part in which no other thread
of the service used a processor is printed, too. Measure on an idle machine."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench import report
from bench.pauses.client import of_consumer
from bench.pauses.expected_rejections import unexpected
from bench.pauses.operations import of_operations
from bench.pauses.rest import of_gateway
from bench.pauses.rest_operations import of_gateway_changes
from bench.pauses.run import ALL, Pause, Selection, of_cluster, running_cluster

OUT = Path("out/pauses.json")
PARTIAL = Path("out/pauses.partial.json")
MAX_PAUSE_MS = 50.0
# Of the widest topic that is created, shrunk, grown and deleted.
PARTITIONS = 3_000


async def run(directory: Path, rounds: int, selection: Selection) -> list[Pause]:
    pauses: list[Pause] = []
    async with running_cluster(directory) as cluster:
        measurings = [
            of_cluster(cluster, rounds, selection=selection),
            of_gateway(cluster, rounds, selection=selection),
            of_consumer(cluster, rounds, selection),
        ]
        if selection == ALL:
            # Each step needs the steps before it.
            measurings += [
                of_operations(cluster, rounds, PARTITIONS),
                of_gateway_changes(cluster, rounds),
            ]
        for measuring in measurings:
            async for pause in measuring:
                pauses.append(pause)
                sys.stdout.write(
                    f"{pause.own_median_ms:8.1f} ms {pause.alone_median_ms:8.1f} "
                    f"{pause.median_ms:8.1f}  {pause.service:10} "
                    f"{pause.case:60} {pause.answer}\n"
                )
                sys.stdout.flush()
    return pauses


def content(pauses: Sequence[Pause], rounds: int) -> dict[str, Any]:
    """Returns the keys of the file.

    - `commit`: the measured code, with a + if files differed.
    - `rounds`: how often each request was sent.
    - `longest_own_pause_ms`: the longest pause of an event loop, as processor time that its process
      used meanwhile.
    - `longest_pause_ms`: the same as elapsed time.
    - `longest_alone_pause_ms`: the same as elapsed time in which no other thread of its process
      used a processor. It contains waits for a disk, which are in no processor time.
    - `pauses`: for each request, its `service`, the `case`, the medians `own_median_ms`,
      `alone_median_ms` and `median_ms` of its pauses, and the `answer`.
    """
    return {
        "commit": report.commit(),
        "rounds": rounds,
        "longest_own_pause_ms": round(max(p.own_median_ms for p in pauses), 1),
        "longest_pause_ms": round(max(p.median_ms for p in pauses), 1),
        "longest_alone_pause_ms": round(max(p.alone_median_ms for p in pauses), 1),
        "pauses": [
            {
                "service": pause.service,
                "case": pause.case,
                "median_ms": round(pause.median_ms, 1),
                "own_median_ms": round(pause.own_median_ms, 1),
                "alone_median_ms": round(pause.alone_median_ms, 1),
                "answer": pause.answer,
            }
            for pause in pauses
        ],
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pauses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each request; default: 5")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="measure only requests whose service and name contain this text, for example "
        f"'gateway GET /v1/topics'; may be repeated; the results go to {PARTIAL}, and changes of "
        "the cluster are left out",
    )
    given = parser.parse_args(argv)
    rounds, selection = given.rounds, Selection(tuple(text.lower() for text in given.only))
    out = OUT if selection == ALL else PARTIAL
    directory = Path(tempfile.mkdtemp(prefix="tidelog-pauses-"))
    try:
        pauses = uvloop.run(run(directory, rounds, selection))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not pauses:
        sys.stderr.write(f"No request contains {' or '.join(given.only)}.\n")
        return 1
    report.write_json(out, content(pauses, rounds))
    longest = max(pauses, key=lambda pause: pause.own_median_ms)
    elapsed = max(pauses, key=lambda pause: pause.alone_median_ms)
    sys.stdout.write(
        f"Longest: {longest.own_median_ms:.1f} ms of processor time, {longest.service}, "
        f"{longest.case}; {elapsed.alone_median_ms:.1f} ms elapsed without another thread, "
        f"{elapsed.service}, {elapsed.case}; written: {out}\n"
    )
    rejected = unexpected(pauses)
    for line in rejected:
        sys.stdout.write(f"Not as expected: {line}\n")
    return 1 if rejected or longest.own_median_ms > MAX_PAUSE_MS else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
