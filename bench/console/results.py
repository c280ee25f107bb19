"""What `make bench-console` leaves behind: a table, and `out/bench-console.json` (in all but
its full form `out/bench-console.partial.json`).

The file holds

- `machine`: processor, cores, memory, Python, kernel;
- `form`: "full", "quick", or "custom" where a setting is another one; `settings`: what was asked
  for, by the names of the options;
- `results`: what the table shows, a list of `name`, `value`, `unit`, `wanted` (the bound, as a
  text) and `met` (null where there is no bound);
- `not_met`: names of results beyond their bounds; empty with exit status 0, else it is 1;
- `overview`: `partitions` that it covers, `first_ms` (its first answer after a time without
  requests), `answers_ms` (one after the other over a kept-alive connection, while a browser showed
  it), `bytes` of its JSON, and `map_bytes` of the map of partitions;
- `seen_s`: from the SIGKILL of a broker until the console showed it as gone;
- `pages`: of each that was watched in a browser, `place` (after #/), `shown_ms` (from the begin of
  the load, with nothing kept from before, until its content was there), `seconds` (watched, the
  load included), `long_tasks_ms` (tasks of the page's main thread of 50 ms or more, by the clock,
  as its PerformanceObserver reports), `longest_processor_ms` (the most that one of its tasks took
  of the processor, by a trace: the rest of the time went to other processes of this machine),
  `busy_percent` (of the main thread's time) and `faults` (errors and warnings of the browser's
  console).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.console.watch import Watched
from bench.percentiles import median
from bench.report import Measured, at_most, machine, not_met, rows

FULL_FILE, PARTIAL_FILE = "bench-console.json", "bench-console.partial.json"
WANTED_ANSWER_MS = 300.0
WANTED_TASK_MS = 100.0
WANTED_SEEN_S = 3.0
OVERVIEW_PLACE = "overview"


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    partitions: int
    first_ms: float
    answers_ms: Sequence[float]
    bytes: int
    map_bytes: int


@dataclass(frozen=True, slots=True)
class Figures:
    overview: OverviewFigures
    seen_s: float
    pages: Sequence[Watched]


def verdicts(figures: Figures) -> list[Measured]:
    overview = figures.overview
    answers = overview.answers_ms
    name = f"overview of {overview.partitions:,} partitions"
    faults = sum(len(page.faults) for page in figures.pages)
    return [
        Measured(f"{name}: answer, median of {len(answers)}", median(answers), "ms"),
        at_most(f"{name}: slowest answer", max(answers), WANTED_ANSWER_MS, "ms"),
        at_most(f"{name}: first answer", overview.first_ms, WANTED_ANSWER_MS, "ms"),
        Measured(f"{name}: size", overview.bytes / 1e3, "kB"),
        Measured(
            f"map of {overview.partitions:,} partitions: size", overview.map_bytes / 1e3, "kB"
        ),
        *(result for page in figures.pages for result in _of_page(page)),
        at_most("a broker that was killed is named after", figures.seen_s, WANTED_SEEN_S, "s"),
        at_most("errors in the browser's console", faults, 0, ""),
    ]


def _of_page(page: Watched) -> list[Measured]:
    """The bound applies to the overview, which stays open all day. While a broker dies, the cluster
    takes the browser's processors."""
    longest = f"{page.place}: longest task in {page.seconds:.0f} s"
    if page.place == OVERVIEW_PLACE:
        task = at_most(longest, page.longest_ms, WANTED_TASK_MS, "ms")
    else:
        task = Measured(longest, page.longest_ms, "ms")
    return [
        Measured(f"{page.place}: shown after", page.shown_ms, "ms"),
        task,
        Measured(f"{page.place}: longest task, processor time", page.longest_processor_ms, "ms"),
        Measured(f"{page.place}: main thread busy", page.busy_percent, "%"),
    ]


def content(form: str, settings: Mapping[str, object], figures: Figures) -> dict[str, object]:
    results = verdicts(figures)
    return {
        "machine": machine(),
        "form": form,
        "settings": dict(settings),
        "results": rows(results),
        "not_met": not_met(results),
        **asdict(figures),
    }


def write(directory: Path, what: Mapping[str, object]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (FULL_FILE if what["form"] == "full" else PARTIAL_FILE)
    path.write_text(json.dumps(what, indent=2) + "\n")
    return path
