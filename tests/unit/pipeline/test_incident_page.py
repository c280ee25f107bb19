"""The incident page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from tidelog_pipeline.state_changes.core.incident import FAMILIES, Incident, LimitedRows, Window
from tidelog_pipeline.state_changes.core.incident_page import page
from tidelog_pipeline.state_changes.core.table_rows import Lines

BEGIN_MS = 1_790_000_000_000
NOTHING = LimitedRows([], 0)
PLACE: dict[str, Any] = {"topic": "<sea>", "partition": 0}


def quiet() -> Incident:
    return Incident(
        window=Window(BEGIN_MS, BEGIN_MS + 60_000),
        lines=Lines(10, 2, 0),
        intervals=[],
        availability=NOTHING,
        marks=NOTHING,
        changes={name: [0, 0] for name in FAMILIES},
        durations=NOTHING,
        elections=NOTHING,
        churn=NOTHING,
        unfinished=NOTHING,
        failovers=NOTHING,
        worst_stages=[],
    )


def troubled() -> Incident:
    interval = {
        "trouble": "no leader", "begin_at": BEGIN_MS + 5_000, "end_at": BEGIN_MS + 6_000,
        "length_ms": 1_000, "is_open": True,
    }  # fmt: skip
    available = {
        "without_leader_ms": 1_000, "longest_without_leader_ms": 1_000, "times_without_leader": 1,
        "under_min_isr_ms": None, "min_isr": None, "observed_ms": 60_000,
    }  # fmt: skip
    failover = {
        "began_at": BEGIN_MS + 5_000, "cause": "broker_crashed", "broker_lost": 2, "leader": 3,
        "noticed_ms": 700, "decided_ms": 200, "told_ms": 60, "taken_up_ms": 40, "total_ms": 1_000,
    }  # fmt: skip
    stage = {
        "told_at": BEGIN_MS + 5_700, "service": "controller-1", "kind": "election", "broker": -1,
        "stage": "requested", "since_requested_ms": 0,
    }  # fmt: skip
    mark = {
        "began_at": BEGIN_MS + 5_000, "kind": "broker_left", "cause": "", "broker": 2,
        "service": "controller-1",
    }  # fmt: skip
    return quiet()._replace(
        intervals=[PLACE | interval],
        availability=LimitedRows([PLACE | available], 9),
        failovers=LimitedRows([PLACE | failover], 1),
        worst_stages=[stage],
        marks=LimitedRows([mark], 1),
        changes={name: [0, 7] for name in FAMILIES},
    )


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the base's
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.rule("incident-page-loads-nothing")
@pytest.mark.parametrize("incident", [quiet(), troubled()], ids=["quiet", "troubled"])
def test_a_page_is_well_formed_and_loads_no_resources(incident: Incident) -> None:
    text = page(incident)
    parser = _Balanced()
    parser.feed(text)
    assert parser.open == []
    for picture in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(picture)
    assert "<script" not in text
    assert "src=" not in text
    assert "href=" not in text
    assert "<sea>" not in text


def test_a_page_shows_the_slowest_failover_step_by_step() -> None:
    text = page(troubled())
    assert (
        "&lt;sea&gt;/0: 1,000 ms, of which until a controller requested an election 700 ms" in text
    )
    assert text.count("<svg") == 3


def test_omitted_entries_are_counted() -> None:
    assert "8 more are in the table." in page(troubled())


def test_a_page_without_incidents_says_so() -> None:
    assert "No partition was without a leader" in page(quiet())
