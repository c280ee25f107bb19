"""The measurements: the gateway's time for the overview of many partitions, the cost of pages for
their browser, and the time until a killed broker is shown."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.async_api import Browser
from rich.console import Console

from bench.console.results import OVERVIEW_PLACE, Figures, OverviewFigures
from bench.console.scene import OVERVIEW, Scene, running_scene
from bench.console.watch import Watch, Watched
from console.browser import running_browser

BROKERS = 3
VICTIM = 3
MAP = "/v1/cluster/partition-map"
# Shown below the table.
MAP_SHOWN = "One cell is one replica"
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `partitions`: of each topic.
    - `alone_s`: the time without a reader of the overview before its first answer. After a minute
      the gateway polls the cluster rarely.
    - `watch_s`: the time for each page, including its load.
    - `rate`: written records per second.
    """

    topics: int
    partitions: int
    alone_s: float
    watch_s: float
    rate: float


FULL = Settings(topics=10, partitions=300, alone_s=75.0, watch_s=30.0, rate=50.0)
QUICK = Settings(topics=3, partitions=20, alone_s=5.0, watch_s=5.0, rate=20.0)


async def run_once(directory: Path, settings: Settings, console: Console) -> Figures:
    topics = {f"topic-{n:02}": settings.partitions for n in range(settings.topics)}
    began_s = time.perf_counter()
    async with running_scene(directory, topics, brokers=BROKERS) as scene:
        took_s = time.perf_counter() - began_s
        console.print(f"  {scene.partitions:,} partitions in {took_s:.0f} s", highlight=False)
        async with running_browser() as browser, scene.written_to(settings.rate):
            return await _figures(scene, browser, settings, console)


async def _figures(scene: Scene, browser: Browser, settings: Settings, console: Console) -> Figures:
    await asyncio.sleep(settings.alone_s)
    first_ms, _ = await _timed_get(scene.rest, OVERVIEW)
    watch = await Watch.begin(browser, scene.url, OVERVIEW_PLACE, MAP_SHOWN)
    answers_ms, _ = await asyncio.gather(
        _answers_ms(scene.rest, settings.watch_s), watch.wander(settings.watch_s)
    )
    pages = [await watch.end()]
    _, overview_bytes = await _timed_get(scene.rest, OVERVIEW)
    _, map_bytes = await _timed_get(scene.rest, MAP)
    _print_page(pages[0], console)
    topic = next(iter(scene.topics))
    for place, seen in (
        ("topics", topic),
        (f"topics/{topic}", f"{settings.partitions:,} partitions"),
        (f"topics/{topic}/0", "Leader and ISR over time"),
        ("brokers", MAP_SHOWN),
        ("moves", "No operation is running."),
        ("events", "reported by"),
        (f"records?topic={topic}&partition=0", "buoy-"),
    ):
        watch = await Watch.begin(browser, scene.url, place, seen)
        await watch.wander(settings.watch_s)
        pages.append(await watch.end())
        _print_page(pages[-1], console)
    seen_s, death = await _death(scene, browser, settings)
    _print_page(death, console)
    return Figures(
        overview=OverviewFigures(scene.partitions, first_ms, answers_ms, overview_bytes, map_bytes),
        seen_s=seen_s,
        pages=[*pages, death],
    )


async def _timed_get(rest: httpx.AsyncClient, path: str) -> tuple[float, int]:
    """Returns the duration in milliseconds, and the bytes of the answer."""
    began_s = time.perf_counter()
    answer = (await rest.get(path)).raise_for_status()
    return (time.perf_counter() - began_s) * 1000, len(answer.content)


async def _answers_ms(rest: httpx.AsyncClient, seconds: float) -> list[float]:
    end_s = time.perf_counter() + seconds
    found = []
    while time.perf_counter() < end_s:
        found.append((await _timed_get(rest, OVERVIEW))[0])
        await asyncio.sleep(PAUSE_S)
    return found


async def _death(scene: Scene, browser: Browser, settings: Settings) -> tuple[float, Watched]:
    """Returns the seconds until a killed broker is shown as gone, and the page that shows it."""
    watch = await Watch.begin(browser, scene.url, OVERVIEW_PLACE, "All is well")
    named = watch.console.page.get_by_role("navigation").get_by_text("1 gone", exact=True)
    seeing = asyncio.ensure_future(named.wait_for(state="attached"))
    await asyncio.sleep(0)
    killed_s = time.perf_counter()
    await scene.cluster.kill(VICTIM)
    await seeing
    seen_s = time.perf_counter() - killed_s
    await watch.wander(settings.watch_s)
    return seen_s, await watch.end(f"{OVERVIEW_PLACE}, while a broker dies")


def _print_page(page: Watched, console: Console) -> None:
    console.print(
        f"  {page.place}: shown after {page.shown_ms:.0f} ms, {len(page.long_tasks_ms)} long tasks "
        f"in {page.seconds:.0f} s, the longest {page.longest_ms:.0f} ms at most, "
        f"{page.longest_processor_ms:.0f} ms of the processor",
        highlight=False,
    )
    for fault in page.faults:
        console.print(f"  [red]{fault}[/]", highlight=False)
