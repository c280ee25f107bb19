"""A partition whose last replica with all records is gone: a leader is elected with the console,
with loss of records."""

from __future__ import annotations

import httpx
import pytest_asyncio
from playwright.async_api import expect

from console.console import Console
from tidelog_runtime.local.cluster import LocalCluster

BEHIND, AHEAD = 3, 2


async def write(rest: httpx.AsyncClient, *values: str) -> None:
    body = {"records": [{"value": value} for value in values]}
    assert (await rest.post("/v1/topics/reef/records", json=body)).status_code == 200


@pytest_asyncio.fixture(loop_scope="session")
async def reef(rest: httpx.AsyncClient, cluster: LocalCluster) -> str:
    """A partition without a leader: one replica missed a record, and the other is gone with it."""
    config = {"min_insync_replicas": 1}
    body = {"topic": "reef", "assignment": [[AHEAD, BEHIND]], "config": config}
    (await rest.post("/v1/topics", json=body)).raise_for_status()
    await write(rest, "both have it")
    await cluster.kill(BEHIND)
    await write(rest, "one has it")
    await cluster.kill(AHEAD)
    cluster.start_broker(BEHIND)
    await cluster.ready()
    return "reef"


async def test_a_leader_is_elected_with_loss_only_once_the_loss_is_shown_and_confirmed(
    console: Console, rest: httpx.AsyncClient, cluster: LocalCluster, reef: str
) -> None:
    try:
        await console.open(f"topics/{reef}/0")
        await console.until_state("no leader")
        await console.button("Recover…").click()
        whole = f"Last known to hold every committed record: {AHEAD}"
        await expect(console.dialog).to_contain_text(whole)
        survivors = console.dialog.get_by_role("table", name="Surviving replicas")
        columns = survivors.get_by_role("columnheader")
        await expect(columns).to_have_text(["Broker", "Last epoch", "Log", "Would lose"])
        # Only the other replica has the missing records.
        behind = survivors.get_by_role("row").filter(has_text="0 to 1")
        await expect(behind.get_by_role("cell").first).to_have_text(str(BEHIND))
        await expect(behind.get_by_role("cell").last).to_have_text("not known")
        gone = survivors.get_by_role("row").filter(has_text="its broker is not running")
        await expect(gone.get_by_role("cell").first).to_have_text(str(AHEAD))
        await expect(gone.get_by_role("radio")).to_be_disabled()
        await behind.get_by_role("radio", name=f"Broker {BEHIND}").check()
        await console.dry_run()
        await expect(console.plan).to_contain_text(f"Broker {BEHIND} would lead")
        elect = console.button("Elect it and lose these records")
        await expect(elect).to_be_disabled()
        assert (await rest.get(f"/v1/topics/{reef}/partitions/0")).json()["leader"] is None
        await console.page.get_by_label(f"Type {reef} to confirm").fill(reef)
        await elect.click()
        await expect(console.page.get_by_text(f"{reef}/0 has a leader.")).to_be_visible()
        leads = console.page.get_by_role("img", name=f"Broker {BEHIND}: leader")
        await expect(leads).to_be_visible()
        path = f"/v1/topics/{reef}/partitions/0/records"
        kept = (await rest.get(path, params={"offset": 0})).json()["items"]
        assert [record["value"] for record in kept] == ["both have it"]
    finally:
        cluster.start_broker(AHEAD)
        await cluster.ready()
        (await rest.delete(f"/v1/topics/{reef}", params={"confirm": reef})).raise_for_status()
    await console.open("overview")
    await expect(console.page.get_by_role("banner").get_by_text("All is well")).to_be_visible()
