"""The cost of a console page for the main thread of its browser, as the browser measures it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.async_api import Browser, CDPSession, Page

from console.console import Console, new_console
from console.tracing import begin_trace, end_trace

# Browsers report only tasks of 50 ms and more, which they call long.
LONG_TASK_MS = 50.0
# The duration of a task that the browser must report, and the polls for its report.
_PROOF_MS = 150
_PROOF_POLLS = 40

_OBSERVER = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longTasks.push(task.duration);
}).observe({ type: "longtask", buffered: true });
"""
_PROOF = f"""() => new Promise((resolve) => {{
  const before = window.longTasks.length;
  setTimeout(() => {{
    const end = performance.now() + {_PROOF_MS};
    while (performance.now() < end);
  }}, 0);
  let polls = {_PROOF_POLLS};
  const poll = () => {{
    if (window.longTasks.length > before) resolve(true);
    else if ((polls -= 1) > 0) setTimeout(poll, 50);
    else resolve(false);
  }};
  setTimeout(poll, {_PROOF_MS});
}})"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A page that a browser showed.

    - `place`: the part of its address after `#/`.
    - `shown_ms`: from the start of the load, with an empty cache, until its content was there.
    - `seconds`: the duration of watching, including the load.
    - `long_tasks_ms`: tasks of the page's main thread of 50 ms or more, by the clock.
    - `longest_processor_ms`: the largest processor time of a task; the rest of its duration went to
      other processes of this machine.
    - `busy_percent`: the share of time in which the main thread was busy.
    - `faults`: errors and warnings of the browser's console.
    """

    place: str
    shown_ms: float
    seconds: float
    long_tasks_ms: Sequence[float]
    longest_processor_ms: float
    busy_percent: float
    faults: Sequence[str]

    @property
    def longest_ms(self) -> float:
        """An upper bound: tasks that are not long are not reported."""
        return max(self.long_tasks_ms, default=LONG_TASK_MS)


class Watch:
    """A page that is opened, watched, and closed by `end`."""

    def __init__(self, browser: Browser, console: Console, session: CDPSession, place: str) -> None:
        self.console = console
        self._browser = browser
        self._session = session
        self._place = place
        self._began_s = 0.0
        self._shown_ms = 0.0

    @classmethod
    async def begin(cls, browser: Browser, url: str, place: str, seen: str) -> Watch:
        """Loads the page from scratch, and returns once the text `seen` is there."""
        console = await new_console(browser, url)
        page = console.page
        await page.add_init_script(_OBSERVER)
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        await begin_trace(browser, page)
        watch = cls(browser, console, session, place)
        watch._began_s = time.perf_counter()
        await console.open(place)
        await page.get_by_role("main").get_by_text(seen).first.wait_for()
        watch._shown_ms = (time.perf_counter() - watch._began_s) * 1000
        return watch

    @property
    def lasted_s(self) -> float:
        return time.perf_counter() - self._began_s

    async def wander(self, until_s: float) -> None:
        """Scrolls and moves the pointer, as people do, until the watch has lasted `until_s`."""
        while self.lasted_s < until_s:
            await self.console.wander()

    async def end(self, name: str = "") -> Watched:
        """Ends the watch. Raises `RuntimeError` if this browser does not report long tasks.

        - `name`: the name of the page, if it differs from the place.
        """
        page = self.console.page
        tasks: list[float] = await page.evaluate("() => window.longTasks")
        seconds = self.lasted_s
        busy_s = await self._busy_s()
        processor_ms = await end_trace(self._browser)
        await _prove(page)
        await self.console.close()
        return Watched(
            place=name or self._place,
            shown_ms=self._shown_ms,
            seconds=seconds,
            long_tasks_ms=tasks,
            longest_processor_ms=max(processor_ms),
            busy_percent=100 * busy_s / seconds,
            faults=list(self.console.faults),
        )

    async def _busy_s(self) -> float:
        metrics = (await self._session.send("Performance.getMetrics"))["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


async def _prove(page: Page) -> None:
    """Checks that the browser reports long tasks."""
    if not await page.evaluate(_PROOF):
        raise RuntimeError(f"this browser does not report a task of {_PROOF_MS} ms as long")
