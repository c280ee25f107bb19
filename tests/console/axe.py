"""Checks a page with axe-core: WCAG 2.2 A and AA, and its best practices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.async_api import Page

_SCRIPT = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# Rules that are off, each with its reason: none.
_OFF: Mapping[str, str] = {}
_RUN = """async ([only, rules]) => {
  const { violations } = await axe.run(document, {
    runOnly: only, rules, resultTypes: ["violations"], preload: false,
  });
  return violations.flatMap(({ id, nodes }) => nodes.map(
    (node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`,
  ));
}"""


async def findings(page: Page, *rules: str) -> list[str]:
    """The violations of some rules, or of all, each with its element and what would be right."""
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(_SCRIPT.read_text())
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": _TAGS}
    # axe has target-size off by default.
    enabled = {"target-size": not rules} | dict.fromkeys(_OFF, False)
    switches = {rule: {"enabled": is_on} for rule, is_on in enabled.items()}
    found: list[Any] = await page.evaluate(_RUN, [only, switches])
    return [str(one) for one in found]
