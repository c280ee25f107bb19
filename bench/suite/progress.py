"""The progress that the terminal shows while the suite runs. It is drawn only between measurements,
because drawing would disturb them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Display:
    def __init__(self, console: Console, parts: int) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}", justify="left"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[doing]}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._all = self._progress.add_task("all parts", total=parts, doing="")
        self._part = self._progress.add_task("", total=1, doing="", visible=False)

    def begin(self, part: str, steps: int) -> None:
        self._progress.reset(self._part, total=steps, description=part, visible=True, doing="")
        self._progress.refresh()

    def step(self, what: str) -> None:
        """Begins a step; the previous one is done."""
        task = self._progress.tasks[self._part]
        done = task.completed + 1 if task.fields["doing"] else 0
        self._progress.update(self._part, completed=done, doing=what)
        self._progress.refresh()

    def end(self) -> None:
        """Ends the part."""
        self._progress.update(self._part, visible=False)
        self._progress.advance(self._all)
        self._progress.refresh()

    def note(self, text: str) -> None:
        self._progress.console.print(f"  {text}", highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
