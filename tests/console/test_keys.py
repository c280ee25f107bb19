"""The console with a keyboard only, and with a dark theme."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from console.console import Console, new_console

PAGES = {
    "o": "Overview",
    "t": "Topics",
    "b": "Brokers",
    "m": "Moves",
    "e": "Events",
    "r": "Records",
}


@pytest.mark.parametrize("key", PAGES)
async def test_g_and_a_letter_open_a_page(console: Console, key: str) -> None:
    await console.open("moves" if key != "m" else "overview")
    await console.page.keyboard.press("g")
    await console.page.keyboard.press(key)
    await expect(console.page.get_by_role("heading", level=1)).to_have_text(PAGES[key])
    await expect(console.page.get_by_role("main")).to_be_focused()


async def test_the_keys_are_shown_and_escape_closes_them(console: Console) -> None:
    await console.open("topics")
    await console.page.keyboard.press("?")
    await expect(console.dialog).to_be_visible()
    # Keys have no effect beneath a dialog.
    await console.page.keyboard.press("g")
    await console.page.keyboard.press("b")
    await console.page.keyboard.press("Escape")
    await expect(console.dialog).to_have_count(0)
    await expect(console.page.get_by_role("heading", level=1)).to_have_text("Topics")


async def test_letters_that_are_typed_into_a_field_are_no_shortcuts(console: Console) -> None:
    await console.open("topics")
    await console.page.keyboard.press("/")
    field = console.page.get_by_label("Find a topic")
    await expect(field).to_be_focused()
    await console.page.keyboard.type("gb?")
    await expect(field).to_have_value("gb?")
    await expect(console.dialog).to_have_count(0)


async def test_the_theme_follows_the_system_until_another_is_chosen(
    browser: Browser, gateway: str
) -> None:
    console = await new_console(browser, gateway, "dark")
    await console.open("overview")
    dark = await _background(console)
    body = console.page.locator("body")
    await console.page.emulate_media(color_scheme="light")
    await expect(body).not_to_have_css("background-color", dark)
    await console.page.emulate_media(color_scheme="dark")
    await expect(body).to_have_css("background-color", dark)
    await console.page.keyboard.press("d")
    await expect(body).not_to_have_css("background-color", dark)
    await console.page.reload()
    await expect(body).not_to_have_css("background-color", dark)
    await console.close()
    assert console.faults == []


async def _background(console: Console) -> str:
    colour: str = await console.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour
