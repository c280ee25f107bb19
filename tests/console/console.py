"""A page of the console in a browser, and the errors in it."""

from __future__ import annotations

import asyncio

from playwright.async_api import Browser, ConsoleMessage, Error, Locator, Page, Request, expect

# Generous: a busy machine is no fault of the console.
TIMEOUT_MS = 60_000
_WHEEL_PX = 300

expect.set_options(timeout=TIMEOUT_MS)


class Console:
    """`faults`: errors and warnings of the browser's console, failed scripts, and requests to hosts
    other than the gateway."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self._url = url
        self._script_failed = asyncio.Event()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", self._note_message)
        page.on("pageerror", self._failed)
        page.on("request", self._note_request)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _failed(self, error: Error) -> None:
        self.faults.append(str(error))
        self._script_failed.set()

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:")):
            self.faults.append(f"asked for {request.url}")

    async def open(self, place: str) -> None:
        """`place`: for example "topics/sea"."""
        await self.page.goto(f"{self._url}/console/#/{place}")
        shown = asyncio.ensure_future(self.page.get_by_role("heading", level=1).wait_for())
        failed = asyncio.ensure_future(self._script_failed.wait())
        await asyncio.wait((shown, failed), return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        # A page whose script does not run shows nothing, however long the test waits.
        if not shown.done():
            shown.cancel()
            raise AssertionError(self.faults)
        await shown

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    @property
    def plan(self) -> Locator:
        """The result of a dry run."""
        return self.page.get_by_label("Effects", exact=True)

    async def dry_run(self) -> None:
        """Submits a form as a dry run."""
        await self.button("Show the effects").click()
        await self.plan.wait_for()

    async def follow(self) -> None:
        """Goes from an accepted change to the page of its operation."""
        await self.page.get_by_role("link", name="Follow it").click()
        await self.page.get_by_role("progressbar", name="Moves done").wait_for()

    async def until_state(self, word: str) -> None:
        """The state of the object that the page shows."""
        await expect(self.page.locator(".page-head .state")).to_have_text(word)

    async def wander(self) -> None:
        """Scrolls and moves the pointer for a second, as people do."""
        await self.page.mouse.wheel(0, _WHEEL_PX)
        await self.page.mouse.move(600, 500)
        await asyncio.sleep(0.5)
        await self.page.mouse.wheel(0, -_WHEEL_PX)
        await asyncio.sleep(0.5)

    async def close(self) -> None:
        await self.page.context.close()


async def new_console(
    browser: Browser, url: str, scheme: str = "light", size: tuple[int, int] = (1440, 900)
) -> Console:
    """Opens a page in its own browser profile. `size`: width and height of the window in pixels."""
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
    )
    return Console(await context.new_page(), url)
