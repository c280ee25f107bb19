"""The pure modules of the console, which need no cluster, run in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS
from unit.admin_api.fakes import FakeCluster

# The gateway may take this long to end after its timeout.
LAST_TRY_MS = 10_000
_CALL = """async ([module, name, given]) =>
  (await import(`/console/app/${module}.js`))[name](...given)"""
WELL = {
    "health": "ok",
    "controller": {"controller_id": 1},
    "counts": {"without_leader": 0, "below_min_isr": 0, "under_replicated": 0},
    "brokers": [],
    "findings": [],
}
PARTITION = {
    "leader": 1,
    "replicas": [1, 2],
    "isr": [1, 2],
    "min_isr": 2,
    "adding_replicas": [],
    "moving_operation": "",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened(browser: Browser) -> AsyncIterator[Console]:
    gateway = MemoryGateway(FakeCluster().app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    await console.open("no-such-page")
    yield console
    await console.close()
    await gateway.stop()


async def evaluated(console: Console, module: str, name: str, *given: Any) -> Any:
    return await console.page.evaluate(_CALL, [module, name, list(given)])


def broker(broker_id: int, status: str, **more: Any) -> dict[str, Any]:
    usual = {"broker_id": broker_id, "status": status, "replicas": 9, "removed": False}
    return {**usual, "maintenance": False, "not_added": False, **more}


@pytest.mark.parametrize(
    ("clients", "text"),
    [
        ([], "–"),
        ([("10.0.0.7", 128)], "10.0.0.7 at max_requests_per_client (128)"),
        (
            [("10.0.0.7", 1_280), ("10.0.0.8", 128)],
            "10.0.0.7 at max_requests_per_client (1,280) and 1 more",
        ),
    ],
)
async def test_the_last_client_at_a_gateway_limit_is_named(
    opened: Console, clients: list[tuple[str, int]], text: str
) -> None:
    given = [
        {"address": address, "limit": "max_requests_per_client", "value": value}
        for address, value in clients
    ]
    assert await evaluated(opened, "parts/gateways", "limitedText", given) == text


async def test_a_gateways_resource_shortage_is_named(opened: Console) -> None:
    given = [
        {"resource": "open_files", "used": 1_020, "limit": 1_024},
        {"resource": "memory", "used": 95, "limit": 100},
    ]
    text = "open_files 1,020 of 1,024, memory 95 of 100"
    assert await evaluated(opened, "parts/gateways", "shortText", given) == text
    assert await evaluated(opened, "parts/gateways", "shortText", []) == "–"


@pytest.mark.parametrize(
    ("changed", "tone", "short"),
    [
        ({}, "ok", "All is well"),
        ({"health": "unknown"}, "", "The state of the cluster is unknown"),
        ({"health": "warning", "brokers": [broker(3, "gone")]}, "warn", "1 broker gone"),
        (
            {
                "health": "critical",
                "brokers": [broker(3, "gone")],
                "counts": {**WELL["counts"], "without_leader": 2},  # type: ignore[dict-item]
            },
            "bad",
            "No leader",
        ),
        ({"brokers": [broker(3, "gone", removed=True, replicas=0)]}, "ok", "All is well"),
        ({"health": "warning", "controller": None}, "warn", "No controller"),
    ],
)
async def test_the_verdict_is_the_worst_finding(
    opened: Console, changed: dict[str, Any], tone: str, short: str
) -> None:
    verdict = await evaluated(opened, "verdict", "verdict", {**WELL, **changed})
    assert (verdict["tone"], verdict["short"]) == (tone, short)


@pytest.mark.parametrize(
    ("described", "word"),
    [
        (broker(1, "running"), "running"),
        (broker(1, "running", maintenance=True), "maintenance"),
        (broker(1, "running", not_added=True, replicas=0), "not added"),
        (broker(1, "running", removed=True), "draining"),
        (broker(1, "running", removed=True, replicas=0), "removed"),
        (broker(1, "gone"), "gone"),
        (broker(1, "gone", removed=True, replicas=0), "removed"),
    ],
)
async def test_a_broker_is_shown_with_its_status(
    opened: Console, described: dict[str, Any], word: str
) -> None:
    assert (await evaluated(opened, "verdict", "statusOf", described))[1] == word


@pytest.mark.parametrize(
    ("changed", "known", "word"),
    [
        ({"role": "leader"}, broker(1, "running"), "leader"),
        ({}, broker(1, "running"), "in sync"),
        ({"in_sync": False}, broker(1, "running"), "out of sync"),
        ({"in_sync": False, "moving": "adding"}, broker(1, "running"), "catching up"),
        ({"role": "damaged"}, broker(1, "running"), "damaged"),
        ({"role": "unknown"}, broker(1, "gone"), "gone"),
        ({"role": "unknown"}, broker(1, "stopping"), "stopping"),
        ({"role": "unknown"}, broker(1, "running", maintenance=True), "not reported"),
        ({"role": "unknown"}, None, "not reported"),
        # Its log end as its leader knows it.
        ({"role": "unknown", "log_end_offset": 7}, broker(1, "gone"), "gone"),
    ],
)
async def test_a_replica_without_a_report_is_shown_with_the_status_of_its_broker(
    opened: Console, changed: dict[str, Any], known: dict[str, Any] | None, word: str
) -> None:
    replica = {"role": "follower", "in_sync": True, "moving": "", "log_end_offset": 9, **changed}
    assert (await evaluated(opened, "verdict", "replicaState", replica, known))[1] == word


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, "in sync"),
        ({"leader": None, "isr": []}, "no leader"),
        ({"isr": [1]}, "under min ISR"),
        ({"isr": [1], "min_isr": 1}, "out of sync"),
        # A broker that is being added is not reported as missing.
        ({"replicas": [1, 2, 3], "adding_replicas": [3], "moving_operation": "m"}, "moving"),
    ],
)
async def test_a_partition_is_shown_with_its_status(
    opened: Console, changed: dict[str, Any], word: str
) -> None:
    assert (await evaluated(opened, "verdict", "healthOf", {**PARTITION, **changed}))[1] == word


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("number", 1_234_567, "1,234,567"),
        ("number", -1, "–"),
        ("bytes", 0, "0 B"),
        ("bytes", 1_536, "1.5 KiB"),
        ("bytes", 5 << 30, "5.0 GiB"),
        ("duration", 999, "999 ms"),
        ("duration", 61_000, "1 min 1 s"),
        ("duration", 90_000_000, "1 d 1 h"),
        # Nanoseconds, by mistake.
        ("clock", 1_700_000_000_000_000_000, "1,700,000,000,000,000,000 ms"),
        ("exactTime", 1_700_000_000_000_000_000, ""),
        ("exactTime", 1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        ("sentence", "brokers_add", "Brokers add"),
        ("sentence", "the leader is gone", "The leader is gone"),
        ("sentence", "orders/0 waits", "orders/0 waits"),
    ],
)
async def test_numbers_are_formatted_for_people(
    opened: Console, name: str, value: object, text: str
) -> None:
    assert await evaluated(opened, "format", name, value) == text


@pytest.mark.parametrize(
    ("partition", "first", "count", "read"),
    [
        ("7", "", 300, [7]),
        ("", "", 5, [0, 1, 2, 3, 4]),
        ("", "", 300, list(range(24))),
        ("", "24", 300, list(range(24, 48))),
        ("", "288", 300, list(range(288, 300))),
        ("", "no number", 30, list(range(24))),
        # The address had more parameters when it was saved.
        ("", "288", 30, [29]),
        ("", "", 0, []),
    ],
)
async def test_records_are_read_from_a_limited_number_of_partitions_at_a_time(
    opened: Console, partition: str, first: str, count: int, read: list[int]
) -> None:
    selection = {"partition": partition, "first": first}
    assert await evaluated(opened, "pages/records", "partitionsRead", selection, count) == read


@pytest.mark.parametrize(
    ("value", "encoding", "text", "shown_as"),
    [
        ('{"tide":"ebb"}', "text", '{\n  "tide": "ebb"\n}', "json"),
        ('{"id":9007199254740993}', "text", '{"id":9007199254740993}', "json"),
        ('{"metres":1.0}', "text", '{"metres":1.0}', "json"),
        ('{"a":1,"a":2}', "text", '{"a":1,"a":2}', "json"),
        ("ebb", "text", "ebb", "text"),
        ("/w==", "base64", "/w==", "base64"),
        (None, "text", "", "none"),
    ],
)
async def test_a_value_is_shown_as_it_was_written(
    opened: Console, value: str | None, encoding: str, text: str, shown_as: str
) -> None:
    found = await evaluated(opened, "parts/record_text", "shownValue", value, encoding)
    assert (found["text"], found["as"]) == (text, shown_as)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (None, "no answer"),
        ({"enabled": True, "running": True, "full_rate": False}, "running"),
        ({"enabled": False, "running": True, "full_rate": True}, "full rate"),
        ({"enabled": True, "running": False, "full_rate": False}, "waiting"),
        ({"enabled": False, "running": False, "full_rate": False}, "off"),
    ],
)
async def test_a_scrub_is_shown_with_its_status(
    opened: Console, status: dict[str, bool] | None, word: str
) -> None:
    assert (await evaluated(opened, "parts/scrub", "passOf", status))[1] == word


@pytest.mark.parametrize("query", [{}, {"timeout_ms": 5_000}])
async def test_the_console_waits_longer_for_an_answer_than_the_gateway(
    opened: Console, query: dict[str, int]
) -> None:
    waits_ms = query.get("timeout_ms", USUAL_TIMEOUT_MS)
    assert await evaluated(opened, "api", "answerMs", query) >= waits_ms + LAST_TRY_MS


async def test_every_cell_of_the_map_is_found_where_it_is_drawn(opened: Console) -> None:
    topics = [{"topic": "sea", "partitions": [[1, [1, 2], [1]]] * 40}]
    layout = await evaluated(opened, "parts/map_layout", "layOut", topics, [1, 2, 3], 400)
    cells = layout["cells"]
    assert [cell["kind"] for cell in cells] == ["leader"] * 40 + ["late"] * 40
    middle = layout["size"] / 2
    found = [
        await evaluated(
            opened, "parts/map_layout", "cellAt", layout, cell["x"] + middle, cell["y"] + middle
        )
        for cell in cells[::13]
    ]
    assert found == list(range(len(cells)))[::13]
    assert await evaluated(opened, "parts/map_layout", "cellAt", layout, 1, 1) is None


KNOWN = [broker(1, "running"), broker(2, "running", maintenance=True), broker(3, "gone")]


@pytest.mark.parametrize(
    ("target", "current", "min_isr", "wrong"),
    [
        ([1, 2], [1, 2], 2, ""),
        ([], [1], 0, "Choose at least one broker."),
        ([1, 2, 1], [1], 0, "Broker 1 is chosen twice"),
        ([1], [1, 2], 2, "which 1 replica can never meet. Choose at least 2 brokers"),
        ([1, 3], [1, 2], 0, "Broker 3 is gone and gets no new replicas."),
        ([1, 3], [1, 3], 0, ""),
        ([1, 9], [1], 0, "Broker 9 is not known."),
    ],
)
async def test_replicas_that_would_be_rejected_are_explained(
    opened: Console, target: list[int], current: list[int], min_isr: int, wrong: str
) -> None:
    given = {"current": current, "minIsr": min_isr, "brokers": KNOWN}
    found = await evaluated(opened, "broker_rules", "wrongTarget", target, given)
    assert (wrong in found) if wrong else (found == "")


@pytest.mark.parametrize(
    ("text", "form", "stored", "problem"),
    [
        ("", "none", [None, "text", 0], ""),
        ("é", "text", ["é", "text", 2], ""),
        ('{"a": 1.0}', "json", ['{"a": 1.0}', "text", 10], ""),
        ("{", "json", ["{", "text", 1], "This is not JSON"),
        ("", "base64", ["", "base64", 0], ""),
        ("aGk\n=", "base64", ["aGk=", "base64", 2], ""),
        ("aGk", "base64", ["aGk", "base64", 0], "This is not base64"),
        ("a-k=", "base64", ["a-k=", "base64", 2], "This is not base64"),
    ],
)
async def test_a_text_is_stored_by_its_format(
    opened: Console, text: str, form: str, stored: list[Any], problem: str
) -> None:
    found = await evaluated(opened, "record_form", "encoded", text, form)
    assert [found["value"], found["encoding"], found["bytes"]] == stored
    assert (problem in found["wrong"]) if problem else (found["wrong"] == "")


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ({"status": 0}, "unknown"),
        ({"status": 504, "code": "REQUEST_TIMED_OUT"}, "unknown"),
        ({"status": 502}, "unknown"),
        ({"status": 500, "code": "INTERNAL"}, "unknown"),
        ({"status": 503, "code": "NOT_ENOUGH_REPLICAS"}, "rejected"),
        ({"status": 413, "code": "BATCH_TOO_LARGE"}, "rejected"),
    ],
)
async def test_a_failure_is_in_doubt_unless_the_gateway_excludes_it(
    opened: Console, problem: dict[str, Any], kind: str
) -> None:
    found = await evaluated(opened, "record_form", "outcomeOfFailure", problem)
    assert found["kind"] == kind
