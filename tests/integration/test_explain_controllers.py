"""Controllers that are paused or have ended, each beside a dead broker: the command reports a
warning, a healthy partition is not blamed, and the step that `explain` suggests ends it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    ANSWER_MS,
    Pairs,
    append,
    assert_not_blamed,
    assert_still_found,
    causes_of,
    create_pairs,
    explained,
    faults_of,
    others,
    text_of,
    the,
    tidelog,
    until_found,
)
from integration.logs import LogSince
from integration.process_limits import ONE_ARENA, limit_memory, without_open_files
from integration.reconfigured import restart_controller
from integration.suggested_steps import until_gone
from integration.waiting import until, until_true
from tidelog.cli.exit_status import ExitStatus
from tidelog.client.explain_requests import explain_cluster
from tidelog.inspection.state_reports import Explanation, Finding, Scope
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "pairs"
DEAD = 3
# The share of its memory limit: a process without any memory left would end before it reports that.
USED_PERCENT = 93
# The second fault of every test here: the dead broker, and the partitions that lack it.
OF_DEAD = (("replica_dead", DEAD), ("under_min_isr", -1))
# Tests kill controllers, which counts as a crash loop of each before long.
CRASHES = (("crash_loop", -1),) * 3
NO_ACTIVE_CONTROLLER = {"no_controller", "controller_unreachable"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    cluster: LocalCluster
    pairs: Pairs

    @property
    def healthy(self) -> str:
        return self.pairs[1, 2]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Its broker 3 is dead: the second fault of every test here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(*ONE_ARENA)
        async with running_cluster(
            tmp_path_factory.mktemp("explain"),
            controllers=3,
            controller_config={"leader_balance": False},
        ) as cluster:
            pairs = await create_pairs(cluster, TOPIC)
            await cluster.kill(DEAD)
            await until_found(cluster, *OF_DEAD)
            yield World(cluster, pairs)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def controllers_run_again(world: World) -> AsyncIterator[None]:
    yield
    for controller_id in (1, 2, 3):
        process = world.cluster.controller_process(controller_id)
        if process.running:
            process.resume()
        else:
            world.cluster.start_controller(controller_id)

    async def all_answer() -> bool:
        """The registration of an ended process may still exist while the next one starts."""
        silent = (await explained(world.cluster)).silent
        return not any(service.startswith("controller-") for service in silent)

    await until(all_answer, "all controllers answer")
    await until_gone(world.cluster, "standby_missing")


async def _roles(cluster: LocalCluster) -> tuple[int, int, int]:
    """The active controller, and the standbys."""
    active = await until(cluster.active_controller, "a controller is active")
    assert active is not None
    one, other = sorted({1, 2, 3} - {active})
    return active, one, other


async def _carry_out(cluster: LocalCluster, finding: Finding) -> None:
    """Carries out the suggested step for a controller: resume its process, or start it again."""
    named = re.findall(r"controller (\d+)", finding.next_step)
    assert named, finding.next_step
    for controller_id in map(int, dict.fromkeys(named)):
        pid = cluster.controller_process(controller_id).pid
        if "kill -CONT PID" in finding.next_step:
            assert pid is not None
            os.kill(pid, signal.SIGCONT)
        else:
            assert pid is None
            cluster.start_controller(controller_id)


async def _away(cluster: LocalCluster, controller_id: int, how: str) -> None:
    if how == "paused":
        cluster.controller_process(controller_id).pause()
    elif how == "stopped":
        process = cluster.controller_process(controller_id)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        await until_true(lambda: not process.running, "its process has ended")
    else:
        await cluster.kill_controller(controller_id)


@pytest.mark.parametrize("how", ["paused", "dead", "stopped"])
async def test_a_missing_standby_and_then_both_controllers_are_explained(
    world: World, how: str
) -> None:
    cluster = world.cluster
    active, one, other = await _roles(cluster)
    await _away(cluster, one, how)
    found = await until_found(cluster, ("standby_missing", -1), *OF_DEAD, also=CRASHES)
    missing = the(found, "standby_missing")
    assert missing.severity == "info"
    assert f"controller {one} is missing; controller {other} can take over" in missing.summary

    await _away(cluster, other, how)
    found = await until_found(cluster, ("no_standby", -1), *OF_DEAD, also=CRASHES)
    no_standby = the(found, "no_standby")
    assert no_standby.severity == "warning"
    assert f"controller-{active} is active, and no standby controller can take over" in (
        no_standby.summary
    )
    if how == "paused":
        assert "process has ended" not in text_of(no_standby)
    assert await faults_of(cluster, world.healthy) == []
    assert_not_blamed(found, world.healthy)
    status, output = await tidelog(cluster, "explain")
    assert status == ExitStatus.FAILED
    assert "WARNING no_standby" in output
    await assert_still_found(cluster, ("no_standby", -1), *OF_DEAD, also=CRASHES)
    await _carry_out(cluster, no_standby)
    await until_gone(cluster, "no_standby")


@pytest.mark.parametrize("how", ["paused", "dead", "stopped"])
async def test_a_missing_active_controller_is_explained_after_a_failover(
    world: World, how: str
) -> None:
    cluster = world.cluster
    active, *_ = await _roles(cluster)
    await _away(cluster, active, how)
    found = await until_found(cluster, ("standby_missing", -1), *OF_DEAD, also=CRASHES)
    missing = the(found, "standby_missing")
    assert f"controller {active} is missing" in missing.summary
    assert "no_controller" not in {cause for cause, _ in causes_of(found)}
    assert await faults_of(cluster, world.healthy) == []
    await _carry_out(cluster, missing)
    await until_gone(cluster, "standby_missing")


async def test_stalled_controllers_are_explained(world: World) -> None:
    cluster = world.cluster
    for controller_id in (1, 2, 3):
        await _away(cluster, controller_id, "paused")
    # By the reports of brokers, once the controllers' leases have ended.
    expected = (("no_controller", -1), *OF_DEAD)
    found = await until_found(cluster, *expected, also=CRASHES, containing=("are paused",))
    missing = the(found, "no_controller")
    assert missing.severity == "critical"
    await assert_still_found(cluster, *expected, also=CRASHES)
    assert await faults_of(cluster, world.healthy) == []
    await _carry_out(cluster, missing)
    await until_gone(cluster, "no_controller")


async def test_an_active_controller_with_an_unresolvable_name_is_explained(world: World) -> None:
    """The request comes from a client that knows only brokers; the client continues with their
    answers."""
    cluster = world.cluster
    active, wrong, other = await _roles(cluster)
    port = cluster.controller_address(wrong).rpartition(":")[2]
    right = {"advertised_address": cluster.controller_address(wrong)}
    await restart_controller(
        cluster, wrong, {"advertised_address": f"controller-{wrong}.invalid:{port}"}
    )
    for controller_id in (active, other):
        await cluster.kill_controller(controller_id)
    brokers = [cluster.broker_address(broker_id) for broker_id in cluster.broker_ids]

    async def by_brokers() -> Explanation:
        return await explain_cluster(brokers, Scope(), ANSWER_MS)

    async def is_found() -> Explanation | None:
        found = await by_brokers()
        expected = (("controller_unreachable", -1), *OF_DEAD)
        has_no_others = not others(found, *expected, *CRASHES)
        return found if has_no_others and causes_of(found).issuperset(expected) else None

    named: list[str] = []
    try:
        found = await until(is_found, "the active controller cannot be queried")
        assert found is not None
        unreachable = the(found, "controller_unreachable")
        named = re.findall(r"Correct advertised_address of controller (\d+)", unreachable.next_step)
        healthy = await faults_of(cluster, world.healthy)
    finally:
        await restart_controller(cluster, int(named[0]) if named else wrong, right)
    assert named == [str(wrong)]
    assert unreachable.severity == "warning"
    assert f"controller-{wrong}.invalid:{port}" in unreachable.summary
    assert "no_controller" not in {cause for cause, _ in causes_of(found)}
    assert ("replica_dead", DEAD) in causes_of(found)
    assert healthy == []

    async def is_gone() -> bool:
        return "controller_unreachable" not in {cause for cause, _ in causes_of(await by_brokers())}

    await until(is_gone, "the active controller answers")


async def test_a_standby_at_its_memory_limit_is_explained(world: World) -> None:
    cluster = world.cluster
    active, standby, _ = await _roles(cluster)
    process = cluster.controller_process(standby)
    assert process.pid is not None
    limit_memory(process.pid, USED_PERCENT)
    found = await until_found(cluster, ("memory_short", -1), *OF_DEAD, also=CRASHES)
    short = the(found, "memory_short")
    assert short.severity == "warning"
    assert f"controller {standby} is near its memory limit: it uses 9" in short.summary
    assert f"Raise the memory limit of controller {standby}" in short.next_step
    assert await faults_of(cluster, world.healthy) == []
    # In a container the kernel does this.
    await cluster.kill_controller(standby)
    found = await until_found(cluster, ("standby_missing", -1), *OF_DEAD, also=CRASHES)
    missing = the(found, "standby_missing")
    assert "of its memory limit when it ended" in text_of(missing)
    assert missing.next_step.startswith(f"Raise the memory limit of controller {standby}")
    assert "memory_short" not in {cause for cause, _ in causes_of(found)}
    assert_not_blamed(found, world.healthy)
    # Its new process has no limit.
    await _carry_out(cluster, missing)
    await until_gone(cluster, "standby_missing")
    await until_gone(cluster, "memory_short")
    assert await cluster.active_controller() == active


@pytest.mark.parametrize("role", ["alone", "standby"])
async def test_a_controller_out_of_open_files_is_explained(world: World, role: str) -> None:
    """Without a standby it is active, and stays so."""
    cluster = world.cluster
    active, standby, other = await _roles(cluster)
    controller_id = standby if role == "standby" else active
    pid = cluster.controller_process(controller_id).pid
    assert pid is not None
    texts = {"alone": "it keeps its lease", "standby": "it cannot take over"}
    if role == "alone":
        await cluster.kill_controller(standby)
        await cluster.kill_controller(other)
    with without_open_files(pid, cluster.controller_address(controller_id)) as limit:
        found = await until_found(
            cluster, ("open_files", -1), *OF_DEAD, also=CRASHES, containing=(texts[role],)
        )
        short = the(found, "open_files")
        _assert_short_of_files(short, controller_id, limit)
        if role == "alone":
            assert short.severity == "critical"
            assert "it is active and still works: it keeps its lease" in short.summary
        else:
            assert short.severity == "warning"
            assert f"it cannot take over from controller-{active}" in short.summary
            assert not {cause for cause, _ in causes_of(found)} & {"no_standby", "standby_missing"}
        assert not {cause for cause, _ in causes_of(found)} & NO_ACTIVE_CONTROLLER
        assert await faults_of(cluster, world.healthy) == []
        assert_not_blamed(found, world.healthy)
        if role == "alone":
            # It elects leaders, as the finding states.
            await _fail_over_from_broker_2(world)
    await until_gone(cluster, "open_files")
    if role == "alone":
        await _start_broker_2(world)
    assert await cluster.active_controller() == active


async def test_an_active_controller_out_of_open_files_steps_down(world: World) -> None:
    cluster = world.cluster
    active, *_ = await _roles(cluster)
    process = cluster.controller_process(active)
    assert process.pid is not None
    log = LogSince(process.log_path)
    with without_open_files(process.pid, cluster.controller_address(active)) as limit:
        found = await until_found(
            cluster, ("open_files", -1), *OF_DEAD, also=CRASHES, containing=("it hands over to",)
        )
        _assert_short_of_files(the(found, "open_files"), active, limit)
        assert_not_blamed(found, world.healthy)

        async def has_handed_over() -> int | None:
            now = await cluster.active_controller()
            return now if now != active else None

        new = await until(has_handed_over, "a standby is active")
        (down,) = log.state_changes("controller_stepped_down")
        assert down["cause"] == "no_open_files"
        # It works like any other: brokers and clients reach it.
        await _fail_over_from_broker_2(world)
        await _start_broker_2(world)
        assert await faults_of(cluster, world.healthy) == []
    await until_gone(cluster, "open_files")
    assert await cluster.active_controller() == new


def _assert_short_of_files(short: Finding, controller_id: int, limit: int) -> None:
    assert f"controller {controller_id} has reached its limit of open files" in short.summary
    assert f"of {limit:,} are open" in short.summary
    assert f"limit of open files of controller {controller_id}" in short.next_step
    assert "prlimit --pid PID --nofile=" in short.next_step


async def _fail_over_from_broker_2(world: World) -> None:
    await world.cluster.kill(2)
    await append(world.cluster, world.pairs[2, 1], [b"taken by the other one"])


async def _start_broker_2(world: World) -> None:
    world.cluster.start_broker(2)

    async def is_well() -> bool:
        return await faults_of(world.cluster, world.healthy) == []

    await until(is_well, "broker 2 is back")
