"""The results of `make bench-console`: a table, and `out/bench-console.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.console.watch import Watched
from bench.report import Measured, at_most, document

MAX_ANSWER_MS = 300.0
MAX_TASK_MS = 100.0
MAX_SEEN_S = 3.0
OVERVIEW_PLACE = "overview"


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    """The answers of the gateway for the overview.

    - `partitions`: how many it covers.
    - `first_ms`: the duration of the first answer after a time without requests.
    - `answers_ms`: the durations of answers, one after the other over a kept-alive connection,
      while a browser shows the overview.
    - `bytes`, `map_bytes`: the size of its JSON, and of the map of partitions.
    """

    partitions: int
    first_ms: float
    answers_ms: Sequence[float]
    bytes: int
    map_bytes: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The measured values.

    - `overview`: the answers of the gateway for the overview; see below.
    - `seen_s`: seconds from the SIGKILL of a broker until the console shows it as gone.
    - `pages`: the pages that a browser showed; see below.
    """

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
        at_most(f"{name}: slowest answer", max(answers), MAX_ANSWER_MS, "ms"),
        at_most(f"{name}: first answer", overview.first_ms, MAX_ANSWER_MS, "ms"),
        Measured(f"{name}: size", overview.bytes / 1e3, "kB"),
        Measured(
            f"map of {overview.partitions:,} partitions: size", overview.map_bytes / 1e3, "kB"
        ),
        *(result for page in figures.pages for result in _of_page(page)),
        at_most("time until a killed broker is shown", figures.seen_s, MAX_SEEN_S, "s"),
        at_most("errors in the browser's console", faults, 0, ""),
    ]


def _of_page(page: Watched) -> list[Measured]:
    """The bound applies only to the overview, which stays open all day. While a broker dies, the
    cluster uses the browser's processors."""
    longest = f"{page.place}: longest task in {page.seconds:.0f} s"
    if page.place == OVERVIEW_PLACE:
        task = at_most(longest, page.longest_ms, MAX_TASK_MS, "ms")
    else:
        task = Measured(longest, page.longest_ms, "ms")
    return [
        Measured(f"{page.place}: shown after", page.shown_ms, "ms"),
        task,
        Measured(f"{page.place}: longest task, processor time", page.longest_processor_ms, "ms"),
        Measured(f"{page.place}: main thread busy", page.busy_percent, "%"),
    ]


def content(form: str, settings: Mapping[str, object], figures: Figures) -> dict[str, object]:
    return {**document(form, settings, verdicts(figures)), **asdict(figures)}
