"""`make results` (`python -m bench.published`): the results that docs/internals/performance.md has.

It takes the results of complete runs from `out/` into docs/internals/bench.json, and generates the
table of the page from that file. A part that was not measured again keeps its rows, each of which
has its commit and date. `--check` only compares the page with the file."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import write_json
from bench.suite.matrix import ONE_REPLICA, USUAL
from documented import ROOT

FILE = ROOT / "docs" / "internals" / "bench.json"
PAGE = ROOT / "docs" / "internals" / "performance.md"
OUT = ROOT / "out"
TABLE = re.compile(
    r"(<!-- results: generated from bench\.json by `make results` -->\n).*?(<!-- results end -->)",
    re.DOTALL,
)
OUT_OF_DATE = (
    f"{PAGE.relative_to(ROOT)} differs from {FILE.relative_to(ROOT)}: run `make results` and "
    "commit both"
)
MAKE_UP_SIZE, MAKE_UP_SECONDS = "make up: size", "make up: set-up"
_LARGE = "10,000 partitions: "
_ALONE = "100,000 partitions: "
# What the page shows, by bench and part; a bench without parts has one without a name.
SHOWN: Mapping[tuple[str, str], Sequence[str]] = {
    ("bench", "throughput"): (
        f"produce {USUAL.name}",
        f"produce {ONE_REPLICA.name}",
        "acks=all of acks=1, 1 KiB, factor 3",
    ),
    ("bench", "reading"): ("consume batches, a backlog in memory",),
    ("bench", "latency"): (
        "one in flight, acks=all, factor 3: p50",
        "one in flight, acks=all, factor 3: p99",
    ),
    ("bench", "durability"): ("synced of replicated, 64 in flight",),
    ("bench", "scale"): (
        f"{_LARGE}failover: SIGKILL until noticed",
        f"{_LARGE}failover: noticed until the last is writable",
        f"{_LARGE}controller takeover: elected until the first command",
        f"{_LARGE}controlled shutdown: until the process has ended",
        f"{_LARGE}restart after a clean stop: until all are in sync",
        f"{_LARGE}idle: processor, busiest broker",
        f"{_LARGE}idle: memory, largest broker",
        f"{_LARGE}idle: open segment files, maximum of a broker",
    ),
    ("bench", "alone"): (
        f"{_ALONE}failover of a third, until all are elected",
        f"{_ALONE}peak memory, including the simulated store",
    ),
    ("bench-peers", ""): (
        "produce, acks=all, Tidelog over Kafka's tools",
        "produce, acks=all, Tidelog over Kafka",
        "consume records in Python, Tidelog over Kafka",
        "one in flight, to ack, Tidelog over Kafka: p99",
        "one in flight, to ack, Tidelog over NATS: p50",
        "one in flight, to ack, Tidelog over NATS: p99",
    ),
    ("packages", ""): (MAKE_UP_SIZE, MAKE_UP_SECONDS),
}

Row = Mapping[str, Any]


def rows_of(bench: str, document: Mapping[str, Any]) -> list[Row]:
    """Returns the shown rows of a file in `out/`.

    Raises `ValueError` if a measured part lacks one of them, or if the measured files differed from
    their commit."""
    measured = document["measured"]
    by_part = measured if bench == "bench" else {"": measured}
    found = {(row.get("part", ""), row["name"]): row for row in document["results"]}
    rows: list[Row] = []
    for part, when in by_part.items():
        for name in SHOWN.get((bench, part), ()):
            if (part, name) not in found:
                raise ValueError(f"{bench} has no result {name!r}: change SHOWN in {__file__}")
            rows.append(_row(bench, part, found[part, name], document["machine"], when))
    return rows


def _row(bench: str, part: str, result: Row, machine: Row, when: Mapping[str, str]) -> Row:
    """Returns the keys of a row of the file.

    - `bench`, `part`: which bench measured it, and which part of it.
    - `name`, `value`, `unit`, `ratio_to_ceiling`, `target`, `met`: as in its file; a value that is
      older than this file may be a text, such as a range.
    - `commit`, `at`: of the measured code, and when; `at` is empty if it was not recorded.
    - `machine`: processor, cores, memory and Python."""
    if not when["commit"] or when["commit"].endswith("+"):
        raise ValueError(
            f"{bench} {part} measured files that differ from a commit: {when['commit'] or 'none'}; "
            "commit them, and measure again"
        )
    return {
        "bench": bench,
        "part": part,
        "name": result["name"],
        "value": result["value"],
        "unit": result["unit"],
        "ratio_to_ceiling": result.get("ratio_to_ceiling"),
        "target": result["target"],
        "met": result["met"],
        "commit": when["commit"],
        "at": when["at"],
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"Python {machine['python']}",
    }


def merged(before: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Returns all rows in the order of `SHOWN`; parts that are new replace their former rows."""
    replaced = {(row["bench"], row["part"]) for row in new}
    kept = [row for row in before if (row["bench"], row["part"]) not in replaced]
    order = [(*key, name) for key, names in SHOWN.items() for name in names]
    rows = {(row["bench"], row["part"], row["name"]): row for row in [*kept, *new]}
    return [rows[key] for key in order if key in rows]


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| measurement | result | of the no-op call | target | commit | date |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    machines: dict[str, None] = dict.fromkeys(row["machine"] for row in rows)
    notes = [f"Machines: {'; '.join(machines)}."]
    if not all(row["at"] for row in rows):
        notes.append("Results without a date were measured before this file was kept.")
    return "\n".join([*lines, "", " ".join(notes)]) + "\n"


def _cells(row: Row) -> Iterator[str]:
    value, ratio = row["value"], row["ratio_to_ceiling"]
    yield row["name"]
    yield f"{value if isinstance(value, str) else f'{value:.4g}'} {row['unit']}".rstrip()
    yield "" if ratio is None else f"{ratio:.2f}"
    yield row["target"] + (" (missed)" if row["met"] is False else "")
    yield f"`{row['commit']}`"
    yield row["at"][:10] or "not recorded"


def filled(page: str, rows: Sequence[Row]) -> str:
    """Returns the page with this table. Raises `ValueError` if it has no place for it."""
    if not TABLE.search(page):
        raise ValueError(f"{PAGE.name} has no markers of its table")
    return TABLE.sub(lambda found: f"{found[1]}\n{table(rows)}\n{found[2]}", page)


def read_rows() -> list[Row]:
    rows: list[Row] = json.loads(FILE.read_text())["rows"]
    return rows


def measured_rows(out: Path) -> list[Row]:
    """Returns the shown rows of all complete runs in this directory."""
    rows: list[Row] = []
    for bench in dict.fromkeys(bench for bench, _ in SHOWN):
        path = out / f"{bench}.json"
        document = json.loads(path.read_text()) if path.exists() else {}
        if "measured" in document:
            rows += rows_of(bench, document)
        elif document:
            sys.stderr.write(f"{path} does not say what it measured: it is left out\n")
    return rows


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.published", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare the page with the file")
    options = parser.parse_args(argv)
    if options.check:
        if filled(PAGE.read_text(), read_rows()) != PAGE.read_text():
            sys.stderr.write(f"{OUT_OF_DATE}\n")
            return 1
        return 0
    try:
        rows = merged(read_rows(), measured_rows(OUT))
    except (KeyError, ValueError) as error:
        sys.stderr.write(f"a file in {OUT} cannot be published: {error}\n")
        return 1
    write_json(FILE, {"rows": rows})
    PAGE.write_text(filled(PAGE.read_text(), rows))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} has {len(rows)} results.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
