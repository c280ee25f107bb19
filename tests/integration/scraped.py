"""The metrics that a service serves at /metrics."""

from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """`values`: by name, then by labels. A histogram has its `_count`."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in self.families:
            for sample in family.samples:
                series = self.values.setdefault(sample.name, {})
                series[frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        return self.values.get(f"tidelog_{name}", {}).get(frozenset(labels.items()))


async def scrape(address: str) -> Scrape:
    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            text: str = response.read().decode()
            return text

    return Scrape(await asyncio.to_thread(read))
