"""Measures the tasks of a page's main thread by a trace of the browser."""

from __future__ import annotations

import json
from collections.abc import Sequence

from playwright.async_api import Browser, Page

_CATEGORIES = ["toplevel", "devtools.timeline"]
_TASK = "RunTask"


async def begin_trace(browser: Browser, page: Page) -> None:
    """Begins a trace; only one can run at a time."""
    await browser.start_tracing(page=page, categories=_CATEGORIES)


async def end_trace(browser: Browser) -> Sequence[float]:
    """The processor time of each task since `begin_trace`, in milliseconds: other work of the
    machine is not counted."""
    events = json.loads(await browser.stop_tracing())["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"].endswith(_TASK)
        and (event["pid"], event["tid"]) in main
        and "tdur" in event
    ]
