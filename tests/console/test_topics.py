"""Topics are created, changed and deleted with the console; each plan is shown first."""

from __future__ import annotations

import httpx
from playwright.async_api import expect

from console.answers import until_partitions
from console.console import Console
from integration.waiting import until


async def topics(rest: httpx.AsyncClient) -> list[str]:
    return [topic["topic"] for topic in (await rest.get("/v1/topics")).json()["items"]]


async def test_a_topic_is_created_as_it_was_shown(
    console: Console, rest: httpx.AsyncClient
) -> None:
    await console.open("topics")
    await console.button("Create topic").click()
    await console.page.get_by_label("Name").fill("waves")
    await console.page.get_by_label("Partitions", exact=False).last.fill("4")
    await console.dry_run()
    assert "waves" not in await topics(rest)
    rows = console.plan.get_by_role("row")
    shown = [await row.get_by_role("cell").all_inner_texts() for row in (await rows.all())[1:]]
    assert [row[0] for row in shown] == [f"waves/{n}" for n in range(4)]
    await console.button("Create it").click()
    await expect(console.page.get_by_role("status").get_by_text("waves is created")).to_be_visible()
    await expect(console.page.get_by_role("link", name="waves", exact=True)).to_be_visible()
    placed = await until_partitions(rest, "waves", 4)
    assert [", ".join(map(str, one["replicas"])) for one in placed] == [row[2] for row in shown]


async def test_a_rejected_request_shows_the_reason_and_changes_nothing(console: Console) -> None:
    await console.open("topics")
    await console.button("Create topic").click()
    await console.page.get_by_label("Name").fill("too-much")
    await console.page.get_by_label("Replicas of each").fill("9")
    # The browser logs the rejected request itself.
    await console.button("Show the effects").click()
    await expect(console.dialog.get_by_role("alert")).to_contain_text("9")
    console.faults[:] = [fault for fault in console.faults if "/v1/topics" not in fault]


async def test_escape_closes_a_dialog_without_doing_anything(
    console: Console, rest: httpx.AsyncClient
) -> None:
    await console.open("topics")
    await console.button("Create topic").click()
    await console.page.get_by_label("Name").fill("never")
    await console.dry_run()
    await console.page.keyboard.press("Escape")
    await expect(console.dialog).to_have_count(0)
    await expect(console.button("Create topic")).to_be_focused()
    assert "never" not in await topics(rest)


async def test_a_topic_is_deleted_only_once_its_name_is_typed(
    console: Console, rest: httpx.AsyncClient
) -> None:
    (await rest.post("/v1/topics", json={"topic": "foam", "partitions": 2})).raise_for_status()
    await console.open("topics/foam")
    await console.button("Delete…").click()
    await expect(console.plan).to_contain_text("2 partitions")
    delete = console.button("Delete it with its data")
    await expect(delete).to_be_disabled()
    await console.page.get_by_label("Type foam to confirm").fill("foa")
    await expect(delete).to_be_disabled()
    await console.page.get_by_label("Type foam to confirm").fill("foam")
    await delete.click()
    await expect(console.page.get_by_text("Topic foam is deleted.")).to_be_visible()

    async def is_gone() -> bool:
        return "foam" not in await topics(rest)

    await until(is_gone, "foam is not listed any more")


async def test_a_topic_with_one_replica_is_marked_as_unprotected(
    console: Console, rest: httpx.AsyncClient
) -> None:
    for topic, factor in (("alone", 1), ("kept", 3)):
        body = {"topic": topic, "replication_factor": factor}
        (await rest.post("/v1/topics", json=body)).raise_for_status()
    marked = console.page.get_by_role("main").get_by_text("unprotected", exact=True)
    await console.open("topics?search=alone")
    await expect(marked).to_be_visible()
    await console.open("topics?search=kept")
    await expect(console.page.get_by_role("link", name="kept", exact=True)).to_be_visible()
    await expect(marked).to_have_count(0)
    await console.open("topics/alone")
    await expect(marked).to_be_visible()
    explained = (await rest.get("/v1/explain")).json()
    assert "single_replica" in {finding["cause"] for finding in explained["findings"]}
    assert explained["well"] is True
    for topic in ("alone", "kept"):
        gone = await rest.delete(f"/v1/topics/{topic}", params={"confirm": topic})
        gone.raise_for_status()


async def test_a_configuration_is_changed(console: Console, rest: httpx.AsyncClient) -> None:
    (await rest.post("/v1/topics", json={"topic": "spray"})).raise_for_status()
    await console.open("topics/spray?tab=config")
    await console.button("Change…").click()
    await console.page.get_by_label("retention_ms").fill("60000")
    await console.dry_run()
    await expect(console.plan).to_contain_text("604800000")
    await console.button("Change it").click()
    await expect(console.page.get_by_text("configuration of spray is changed")).to_be_visible()
    config = (await rest.get("/v1/topics/spray")).json()["config"]
    assert {"60000"} == {entry["value"] for entry in config if entry["key"] == "retention_ms"}


async def test_partitions_are_added_and_removed_with_consent(
    console: Console, rest: httpx.AsyncClient
) -> None:
    (await rest.post("/v1/topics", json={"topic": "swell", "partitions": 2})).raise_for_status()
    await console.open("topics/swell")
    await console.button("Partitions…").click()
    await console.page.get_by_label("Partitions in all").fill("5")
    await console.dry_run()
    await expect(console.plan).to_contain_text("swell/4")
    rows = (await console.plan.get_by_role("row").all())[1:]
    shown = [await row.get_by_role("cell").all_inner_texts() for row in rows]
    await console.button("Add them").click()
    await expect(console.page.get_by_text("swell has 5 partitions")).to_be_visible()
    placed = await until_partitions(rest, "swell", 5)
    assert [", ".join(map(str, one["replicas"])) for one in placed[2:]] == [row[2] for row in shown]

    facts = console.page.get_by_role("main").get_by_role("definition")
    await expect(facts.first).to_have_text("5")
    await console.button("Partitions…").click()
    await console.page.get_by_label("Partitions in all").fill("2")
    await console.dry_run()
    await expect(console.plan).to_contain_text("3 partitions, from 2 to 4, would be deleted")
    remove = console.button("Remove them with their data")
    await expect(remove).to_be_disabled()
    await console.page.get_by_label("Type swell to confirm").fill("swell")
    await remove.click()
    await expect(console.page.get_by_text("swell has 2 partitions")).to_be_visible()
    assert (await rest.get("/v1/topics/swell")).json()["partitions"] == 2
