"""The results of the demo: a report for people, and `out/demo.json` for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table


@dataclass(frozen=True, slots=True)
class WriteGaps:
    leader_kill: float
    controller_kill: float


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The results of a run.

    - `ok`: every guarantee held; the exit status is 0.
    - `acknowledged`, `read`, `lost`, `duplicates`: numbers of records.
    - `wrong`: the number of records whose content differs from the file.
    - `unexpected`: the number of records that were read and never acknowledged.
    - `failed_sends`: the number of sends that were reported as failed.
    - `bytes`: the acknowledged bytes.
    - `replicas_identical`: replicas are equal byte by byte on disk below the high watermark.
    - `isr_full`: all replicas are in sync at the end.
    - `write_gap_seconds`: the longest time between two acknowledgements on a partition, around
      `leader_kill` and `controller_kill`.
    - `detection_seconds`: from the leader's SIGKILL until the metadata of the other brokers no
      longer had it.
    - `after_detection_seconds`: the rest of the gap around `leader_kill`.
    - `mb_per_second`: 10^6 bytes per second while writing, including the kills.
    - `seconds`: the duration of the run.
    """

    acknowledged: int
    read: int
    lost: int
    duplicates: int
    wrong: int
    unexpected: int
    failed_sends: int
    bytes: int
    replicas_identical: bool
    isr_full: bool
    write_gap_seconds: WriteGaps
    detection_seconds: float
    after_detection_seconds: float
    mb_per_second: float
    seconds: float

    @property
    def ok(self) -> bool:
        return (
            self.acknowledged > 0
            and self.lost == 0
            and self.duplicates == 0
            and self.wrong == 0
            and self.unexpected == 0
            and self.failed_sends == 0
            and self.replicas_identical
            and self.isr_full
        )

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"ok": self.ok, **asdict(self)}
        path.write_text(json.dumps(content, indent=2) + "\n")

    def print(self, console: Console) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="bold")
        table.add_column()
        for value, meaning in self._rows():
            table.add_row(value, meaning)
        verdict = (
            "[bold green]nothing lost, nothing twice[/]"
            if self.ok
            else "[bold red]a guarantee was violated[/]"
        )
        style = "green" if self.ok else "red"
        console.print(Panel(table, title=f"Tidelog demo: {verdict}", border_style=style))

    def _rows(self) -> list[tuple[str, str]]:
        megabytes = self.bytes / 1e6
        gaps = self.write_gap_seconds
        return [
            (
                f"{self.acknowledged:,}",
                f"records acknowledged by all replicas ({megabytes:.0f} MB)",
            ),
            (f"{self.read:,}", "records read back by another process and compared by hash"),
            (_verdict(self.lost), "lost"),
            (_verdict(self.duplicates), "written twice"),
            (_verdict(self.wrong), "with content that differs from their file"),
            (_verdict(self.unexpected), "that were read but never acknowledged"),
            (_verdict(self.failed_sends), "sends that failed"),
            (_yes(self.replicas_identical), "replicas are identical on disk, byte by byte"),
            (_yes(self.isr_full), "every ISR is full again"),
            (
                f"{gaps.leader_kill:.2f} s",
                "longest pause of writes on the killed leader's partitions "
                f"(detected after {self.detection_seconds:.2f} s)",
            ),
            (f"{gaps.controller_kill:.2f} s", "longest pause around the controller's kill"),
            (f"{self.mb_per_second:.0f} MB/s", "written, three times each, kills included"),
            (f"{self.seconds:.0f} s", "from start to verdict"),
        ]


def _verdict(count: int) -> str:
    return f"[green]{count}[/]" if count == 0 else f"[red]{count:,}[/]"


def _yes(holds: bool) -> str:
    return "[green]yes[/]" if holds else "[red]no[/]"
