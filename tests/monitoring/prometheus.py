"""A real Prometheus for one test, with the configuration of deploy/prometheus and shorter waits."""

from __future__ import annotations

import json
import os
import random
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog_runtime.local.addresses import HOST, choose_port
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.local.prometheus_targets import TARGETS_FILE

DEPLOYED = Path(__file__).parents[2] / "deploy/prometheus"

SCRAPE_SECONDS = 1
# An alert waits a twentieth of its production time, but at least this long; alerts of ten minutes
# or more wait a tenth.
LEAST_WAIT_SECONDS = 6
WAIT_DIVISOR = 20
LONG_SECONDS = 600
LONG_WAIT_DIVISOR = 10

_START_SECONDS = 20.0
_REQUEST_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Series:
    """`points`: (time in seconds since the epoch, value). Values that are no number are left
    out."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]

    @property
    def largest(self) -> float:
        return max(value for _, value in self.points)


class QueryError(Exception):
    """Prometheus rejected the query; the message is its own."""


def quicker_rules(rules: str) -> str:
    def wait(match: re.Match[str]) -> str:
        seconds = int(match[1]) * {"s": 1, "m": 60}[match[2]]
        divisor = WAIT_DIVISOR if seconds < LONG_SECONDS else LONG_WAIT_DIVISOR
        return f"for: {min(seconds, max(LEAST_WAIT_SECONDS, seconds // divisor))}s"

    return re.sub(r"\bfor: (\d+)([sm])$", wait, rules, flags=re.MULTILINE)


class Prometheus:
    """Scrapes the clusters of `cluster_directory`, from the target file that the cluster wrote
    there."""

    def __init__(self, directory: Path, cluster_directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        rules = (DEPLOYED / "alerts.yml").read_text()
        (directory / "alerts.yml").write_text(quicker_rules(rules))
        config, changed = re.subn(
            r"\b(scrape|evaluation)_interval: \w+",
            rf"\1_interval: {SCRAPE_SECONDS}s",
            (DEPLOYED / "prometheus.yml").read_text(),
        )
        assert changed == 2
        targets = f"../../.tidelog/{TARGETS_FILE}"
        assert targets in config
        path = directory / "prometheus.yml"
        path.write_text(config.replace(targets, str(cluster_directory / TARGETS_FILE)))
        port = choose_port(None, taken=set(), rng=random.Random())
        self._url = f"http://{HOST}:{port}"
        self.process = LocalProcess(
            "prometheus",
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={HOST}:{port}",
                "--log.level=warn",
            ],
            log_path=directory / "prometheus.log",
            environment=dict(os.environ),
        )

    def until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self.process.running, self.process.log_tail()
            try:
                with urllib.request.urlopen(f"{self._url}/-/ready", timeout=1):
                    return
            except OSError:
                assert time.monotonic() < deadline, self.process.log_tail()
                time.sleep(0.1)

    def query_range(self, expr: str, start: float, end: float) -> list[Series]:
        """Queries a range with one point a second; series without any number are left out.

        Raises `QueryError`."""
        answer = self._request("query_range", query=expr, start=start, end=end, step=1)
        found = [
            Series(
                series["metric"],
                tuple(
                    (at, float(text))
                    for at, text in series["values"]
                    if text not in ("NaN", "+Inf", "-Inf")
                ),
            )
            for series in answer["result"]
        ]
        return [series for series in found if series.points]

    def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        """The labels of all series, by the query that Grafana uses for the values of a variable."""
        found: list[dict[str, str]] = self._request(
            "series", **{"match[]": selector, "start": start, "end": end}
        )
        return found

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire now, with their labels and annotations."""
        return [alert for alert in self._request("alerts")["alerts"] if alert["state"] == "firing"]

    def _request(self, what: str, **parameters: object) -> Any:
        form = urllib.parse.urlencode(parameters)
        url = f"{self._url}/api/v1/{what}{'?' if form else ''}{form}"
        try:
            with urllib.request.urlopen(url, timeout=_REQUEST_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{json.load(error)['error']}: {parameters}") from None
