"""The first steps of users with the cluster of docker-compose.yml, and common next steps."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from compose.stack import BROKERS, CONTROLLERS, Stack, until
from documented import tour_in_containers
from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer

TOPIC = "tide"
RECORDS = 500
# Failure detection, election and the gateway's next poll, on a machine with other work.
FAILOVER_TIMEOUT_S = 60.0
WHOLE_TIMEOUT_S = 120.0
# Less than a second by itself; its health is checked every ten.
RESTARTED_S = 60.0


@pytest.fixture(scope="module")
def topic(stack: Stack) -> str:
    stack.post("/v1/topics", {"topic": TOPIC, "partitions": 6, "replication_factor": 3})
    stack.wait_whole(TOPIC, WHOLE_TIMEOUT_S)
    return TOPIC


def lines(first: int, count: int) -> list[str]:
    return [f"key-{n}:value-{n}" for n in range(first, first + count)]


def consumed(stack: Stack, topic: str) -> list[str]:
    return stack.tidelog("consume", topic, "--key-separator", ":").splitlines()


def test_all_brokers_and_controllers_are_registered_in_their_racks(stack: Stack) -> None:
    cluster = stack.get("/v1/cluster")
    assert [(b["broker_id"], b["rack"], b["status"]) for b in cluster["brokers"]] == [
        (1, "a", "running"),
        (2, "a", "running"),
        (3, "b", "running"),
    ]
    assert [c["controller_id"] for c in cluster["controllers"]] == [1, 2]
    assert cluster["controller"] is not None


def test_a_cluster_that_has_just_started_is_healthy(stack: Stack) -> None:
    explained = json.loads(stack.tidelog("--json", "explain"))
    assert explained["findings"] == []


def test_the_documented_tour_works_as_written(stack: Stack) -> None:
    """The tour's broker is killed, explained, and started again."""
    lines = tour_in_containers()
    done = [stack.typed(line) for line in lines]
    stack.wait_healthy(["broker-3"], WHOLE_TIMEOUT_S)
    stack.wait_whole("sea", WHOLE_TIMEOUT_S)

    assert len(lines) == 15
    # The exit status reports the problem, too.
    failed = {line: d.stderr for line, d in zip(lines, done, strict=True) if d.returncode != 0}
    assert set(failed) == {"tidelog explain"}, failed
    outputs = [d.stdout for d in done]
    assert sorted(outputs[3].split()) == ["north:calm", "north:swell", "south:storm"]
    assert '"still"' in outputs[8]
    assert "broker 3" in outputs[9]
    assert "become_leader" in outputs[10]
    assert "/replicas/sea-0." in outputs[11]
    # Leaders are transferred back later, which the output mentions as well.
    until(
        lambda: stack.typed("tidelog explain").returncode == 0,
        "nothing is wrong once the broker is back",
        WHOLE_TIMEOUT_S,
    )


def test_the_console_is_served(stack: Stack) -> None:
    page = stack.gateway.get("/", follow_redirects=True)
    assert page.status_code == 200
    assert "Tidelog" in page.text


def test_records_are_consumed_after_a_leader_was_killed(stack: Stack, topic: str) -> None:
    before = lines(0, RECORDS)
    stack.tidelog("produce", topic, "--key-separator", ":", stdin="\n".join(before))
    assert sorted(consumed(stack, topic)) == sorted(before)

    victim = stack.partitions(topic)[0]["leader"]
    name = BROKERS[victim - 1]
    stack.signal(name, "KILL")
    until(
        lambda: all(p["leader"] not in (None, victim) for p in stack.partitions(topic)),
        f"others lead what broker {victim} led",
        FAILOVER_TIMEOUT_S,
    )
    after = lines(RECORDS, RECORDS)
    stack.tidelog("produce", topic, "--key-separator", ":", stdin="\n".join(after))
    assert sorted(consumed(stack, topic)) == sorted(before + after)

    stack.start(name)
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)
    stack.wait_healthy([name], WHOLE_TIMEOUT_S)


def test_a_client_on_this_machine_needs_only_the_published_ports(stack: Stack) -> None:
    bootstrap = ",".join(stack.brokers.values())
    with SyncAdmin(bootstrap) as admin:
        brokers = admin.describe_cluster().brokers
        assert {broker.broker_id: broker.address for broker in brokers} == stack.brokers
        admin.create_topic("from-outside", partitions=3, replication_factor=3)
    sent = [f"value-{n}".encode() for n in range(RECORDS)]
    with SyncProducer(bootstrap) as producer:
        for value in sent[: RECORDS // 2]:
            producer.send_and_wait("from-outside", value)
        victim = BROKERS[stack.partitions("from-outside")[0]["leader"] - 1]
        stack.signal(victim, "KILL")
        for value in sent[RECORDS // 2 :]:
            producer.send_and_wait("from-outside", value)
    read: list[bytes] = []
    with SyncConsumer(bootstrap) as consumer:
        consumer.assign_topic("from-outside")

        def all_read() -> bool:
            read.extend(record.value or b"" for record in consumer.poll(timeout_ms=1_000))
            return len(read) >= len(sent)

        until(all_read, "every record is consumed", WHOLE_TIMEOUT_S)
    assert sorted(read) == sorted(sent)
    stack.start(victim)
    stack.wait_whole("from-outside", WHOLE_TIMEOUT_S)


def test_the_other_controller_becomes_active_when_one_is_killed(stack: Stack, topic: str) -> None:
    active = stack.get("/v1/cluster")["controller"]
    name = CONTROLLERS[active["controller_id"] - 1]
    stack.signal(name, "KILL")

    def another() -> bool:
        now = stack.get("/v1/cluster")["controller"]
        return bool(now and now["controller_epoch"] > active["controller_epoch"])

    until(another, "another controller is active", FAILOVER_TIMEOUT_S)
    stack.post("/v1/topics", {"topic": "made-by-the-other", "partitions": 1})
    stack.start(name)
    stack.wait_healthy([name], WHOLE_TIMEOUT_S)
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="its process is another user's")
def test_a_broker_whose_process_ends_by_itself_is_started_again_by_the_engine(
    stack: Stack, topic: str
) -> None:
    """The machine kills its process, because `docker kill` counts as a stop by the user."""
    name, broker_id = BROKERS[1], 2
    before, epoch = stack.inspect(name), broker_epoch(stack, broker_id)
    kill_main_process(before)

    def is_back() -> bool:
        now = stack.inspect(name)
        again = now["RestartCount"] == before["RestartCount"] + 1
        return again and stack.health(name) == "healthy" and broker_epoch(stack, broker_id) > epoch

    until(is_back, f"{name} runs, answers its health check and is registered again", RESTARTED_S)
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)


def kill_main_process(container: dict[str, Any]) -> None:
    pid = container["State"]["Pid"]
    runs = Path(f"/proc/{pid}/cmdline").read_bytes()
    # If the engine has its own machine, this id belongs to another process here.
    assert b"tidelog_broker" in runs, f"{pid} is no broker: {runs!r}"
    os.kill(pid, signal.SIGKILL)


def broker_epoch(stack: Stack, broker_id: int) -> int:
    """0: the broker is not registered."""
    brokers = stack.get("/v1/cluster")["brokers"]
    return next((b["broker_epoch"] for b in brokers if b["broker_id"] == broker_id), 0)


def test_data_outlives_containers(stack: Stack, topic: str) -> None:
    """A container that is created again finds its broker's data in the volume."""
    held = sorted(consumed(stack, topic))
    assert held
    stack.compose("up", "--detach", "--force-recreate", "--no-deps", BROKERS[0])
    stack.wait_healthy(BROKERS, WHOLE_TIMEOUT_S)
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)
    assert sorted(consumed(stack, topic)) == held
