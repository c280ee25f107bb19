"""What `make bench-grow` leaves behind: a table, and `out/bench-grow.json` (in all but
its full form `out/bench-grow.partial.json`).

The file holds

- `machine`: processor, cores, memory, Python, kernel;
- `form`: "full", "quick", or "custom" where a setting is another one; `settings`: what was asked
  for, by the names of the options;
- `results`: what the table shows, a list of `name`, `value`, `unit`, `wanted` (the bound, as a
  text) and `met` (null where there is no bound);
- `not_met`: names of results beyond their bounds; empty with exit status 0, else it is 1;
- `runs`: for each, `quiet_samples`, `quiet_p50_ms`, `quiet_p99_ms` (before anything is added),
  `quiet_cores` (of the processor, that `brokers`, `controllers`, `etcd` and the `load` kept busy
  then), `late_p99_ms` (by how much the load was behind its schedule when it sent), `sent`, `failed`
  (produces), `bytes_filled`, `fill_s`, `read_back` (`acknowledged`, `read`, `lost`,
  `duplicates`, `unexpected` records), and `grow` and `shrink` with

| key | meaning |
| --- | --- |
| `operation` | its id |
| `duration_s` | from the request until replicas are moved, in sync, and leaders are balanced |
| `samples`, `p50_ms`, `p99_ms`, `longest_ms` | produces that were due meanwhile, from when each was due to its acknowledgement by all |
| `p99_ratio` | to the quiet one of the same run |
| `replicas_planned` | copies, as the plan showed before anything was begun |
| `replicas_moved` | replicas on brokers that had none of their partition before |
| `replicas_minimum` | growing: what brokers lack to floor(total / brokers); shrinking: what the removed broker held |
| `bytes_moved` | what leaders sent to followers beyond the load, as brokers count it; what is sent twice counts twice |
| `bytes_received` | what followers took of that |
| `bytes_minimum` | growing: `replicas_minimum` times the mean size of a replica at the begin; shrinking: what the removed broker held then |
| `bytes_told` | `bytes_copied` of the operation, as the controller reports it; 0: it does not |
| `replicas_by_broker`, `leaders_by_broker` | afterwards, of the brokers that take part |
| `replica_spread`, `leader_spread` | the most less the fewest of these |
| `leader_spread_before_election` | the latter before preferred leaders were elected by request, if the cluster had not done so by itself within ten seconds |
| `throttle_bytes_per_second` | for each broker, as set |
| `bytes_per_second` | `bytes_moved` over `duration_s`, all brokers together |
| `peak_bytes_per_second` | of the broker that received most within about five seconds, the load's records included |
| `rate_ratio` | the most that a broker received within about five seconds against what throttle, a fifth of a second of it at once, and load let it receive then |
| `cores` | of the processor, that the parts kept busy |
| `replicas_ratio`, `bytes_ratio` | moved against the minimum |
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.grow.figures import MoveFigures, RunFigures, verdicts
from bench.report import machine, not_met, rows

FULL_FILE, PARTIAL_FILE = "bench-grow.json", "bench-grow.partial.json"


def content(
    form: str, settings: Mapping[str, object], runs: Sequence[RunFigures]
) -> dict[str, object]:
    results = verdicts(runs)
    return {
        "machine": machine(),
        "form": form,
        "settings": dict(settings),
        "results": rows(results),
        "not_met": not_met(results),
        "runs": [_run(run) for run in runs],
    }


def write(directory: Path, what: Mapping[str, object]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (FULL_FILE if what["form"] == "full" else PARTIAL_FILE)
    path.write_text(json.dumps(what, indent=2) + "\n")
    return path


def _run(run: RunFigures) -> dict[str, object]:
    return asdict(run) | {"grow": _move(run.grow), "shrink": _move(run.shrink)}


def _move(move: MoveFigures) -> dict[str, object]:
    return asdict(move) | {
        "replicas_ratio": move.replicas_ratio,
        "bytes_ratio": move.bytes_ratio,
    }
