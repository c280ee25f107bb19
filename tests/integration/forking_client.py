"""A process that forks while it has clients; it prints what each child and the parent observed, as
JSON.

python forking_client.py BOOTSTRAP sync|async"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.client import (
    Admin,
    Consumer,
    Producer,
    SyncAdmin,
    SyncConsumer,
    SyncProducer,
    TidelogError,
)
from tidelog.rpc import forks

TOPIC = "sea"
CHILD_TIMEOUT_S = 15
# A busy machine may stall an event loop for more than a second. Children raise CLIENT_FORKED then.
FORK_WAIT_S = 10.0
# Shorter, because a fork waits that long if a request is in progress.
ENDING_WAIT_S = 1.0
# Process pools fork like this: the parent's clients are about to connect again.
FORKS_IN_SUCCESSION = 30
# One child in four crashed.
FORKS_DURING_A_REQUEST = 8
HANGS = "hangs"

_fork = multiprocessing.get_context("fork")


def in_child(work: Callable[[], Any]) -> str:
    """The result of a forked child's work, or the name of its exception, or how it ended without
    either."""
    answers = _fork.SimpleQueue()

    def run() -> None:
        answers.put(outcome(work))

    child = _fork.Process(target=run)
    child.start()
    child.join(CHILD_TIMEOUT_S)
    if child.is_alive():
        child.kill()
        child.join()
        return HANGS
    if child.exitcode != 0 or answers.empty():
        return f"exit status {child.exitcode}"
    return str(answers.get())


def in_children(work: Callable[[], Any], count: int) -> dict[str, int]:
    """The results of children that are forked right after one another, with the number of children
    that have each."""
    return dict(Counter(in_child(work) for _ in range(count)))


def outcome(work: Callable[[], Any]) -> str:
    try:
        return str(work())
    except TidelogError as error:
        return error.code.name
    except BaseException as error:
        return repr(error)


def own_sync(bootstrap: str) -> str:
    with SyncProducer(bootstrap) as producer, SyncConsumer(bootstrap) as consumer:
        offset = producer.send_and_wait(TOPIC, b"child").offset
        consumer.assign_topic(TOPIC)
        return "read" if consumer.poll(5_000) and offset >= 0 else "nothing read"


def own_admin(bootstrap: str) -> str:
    with SyncAdmin(bootstrap) as admin:
        return admin.list_topics()[0].name


def own_async(bootstrap: str) -> str:
    async def main() -> str:
        async with Producer(bootstrap) as producer:
            await (await producer.send(TOPIC, b"child"))
            return "sent"

    return asyncio.run(main())


def sync_clients(bootstrap: str) -> dict[str, Any]:
    """The parent has clients that other threads use."""
    producer, consumer, admin = (
        SyncProducer(bootstrap),
        SyncConsumer(bootstrap),
        SyncAdmin(bootstrap),
    )
    producer.send_and_wait(TOPIC, b"parent")
    admin.list_topics()
    consumer.assign_topic(TOPIC)
    stop = threading.Event()
    read: list[str] = []
    sent: list[str] = []
    listed: list[str] = []

    def poll() -> None:
        while not stop.is_set():
            read.append(outcome(lambda: len(consumer.poll(50))))

    def send() -> None:
        while not stop.is_set():
            sent.append(outcome(lambda: producer.send_and_wait(TOPIC, b"parent").topic))

    def administer() -> None:
        while not stop.is_set():
            listed.append(outcome(lambda: admin.list_topics()[0].name))

    threads = [threading.Thread(target=work) for work in (poll, send, administer)]
    for thread in threads:
        thread.start()
    seen: dict[str, Any] = {
        "own clients of children in quick succession": in_children(
            lambda: own_admin(bootstrap), FORKS_IN_SUCCESSION
        ),
        "inherited producer": in_child(lambda: producer.send(TOPIC, b"child")),
        "inherited consumer": in_child(lambda: consumer.poll(100)),
        "inherited admin": in_child(admin.list_topics),
        "close of an inherited client": in_child(producer.close),
        "own clients": in_child(lambda: own_sync(bootstrap)),
        "own clients of a grandchild": in_child(lambda: in_child(lambda: own_sync(bootstrap))),
        "parent": outcome(lambda: producer.send_and_wait(TOPIC, b"parent").topic),
    }
    stop.set()
    for thread in threads:
        thread.join()
    seen["parent's sending thread"] = ", ".join(sorted(set(sent)))
    # A list may time out, because the forks in succession end each of its tries.
    seen["parent's administering thread"] = listed[-1]
    seen["parent's thread"] = ", ".join(sorted({"polled" if r.isdigit() else r for r in read}))
    for client in (producer, consumer, admin):
        client.close()
    seen["own clients after the parent closed its"] = in_child(lambda: own_sync(bootstrap))
    return seen


async def _forks_with_deliveries(bootstrap: str, seen: dict[str, str]) -> None:
    """The parent forks before its deliveries have an outcome."""

    async def wait(delivery: Awaitable[Any]) -> Any:
        return await delivery

    async with Producer(bootstrap, linger_ms=60_000) as producer:
        deliveries: dict[str, Awaitable[Any]] = {
            "delivery": await producer.send(TOPIC, b"parent"),
            # Not sent yet, because nothing is awaited before the fork.
            "batch delivery": await producer.send_many(TOPIC, [b"parent"]),
        }
        for name, delivery in deliveries.items():
            seen[f"inherited {name}"] = in_child(
                lambda delivery=delivery: asyncio.run(wait(delivery))  # type: ignore[misc]
            )
        await producer.flush()
        for delivery in deliveries.values():
            await wait(delivery)


async def async_clients(bootstrap: str) -> dict[str, str]:
    """The parent forks in a coroutine."""
    seen: dict[str, str] = {}
    async with Producer(bootstrap) as producer, Admin(bootstrap) as admin:
        await (await producer.send(TOPIC, b"parent"))
        await admin.list_topics()

        def inherited() -> Any:
            async def send() -> None:
                await producer.send(TOPIC, b"child")

            return asyncio.run(send())

        def closes_inherited() -> Any:
            return asyncio.run(producer.close())

        seen["inherited producer"] = in_child(inherited)
        seen["close of an inherited client"] = in_child(closes_inherited)
        await _forks_with_deliveries(bootstrap, seen)
        seen["own client"] = in_child(lambda: own_async(bootstrap))
        seen["parent"] = (await (await producer.send(TOPIC, b"parent"))).topic
        async with Consumer(bootstrap, max_wait_ms=2_000) as consumer:
            await consumer.assign_topic(TOPIC)
            await consumer.seek_to_end()
            answered: set[str] = set()
            for _ in range(FORKS_DURING_A_REQUEST):
                await asyncio.sleep(0.3)
                # A fetch is in progress, in the loop of the thread that forks.
                answered.add(in_child(lambda: own_async(bootstrap)))
            # A sending client was forked while the consumer had no request.
            seen["own client, a request in progress"] = ", ".join(sorted(answered - {"sent"}))
            await (await producer.send(TOPIC, b"parent"))
            seen["parent's consumer"] = "read" if await consumer.poll(5_000) else "nothing read"
    return seen


if __name__ == "__main__":
    _, bootstrap, scenario = sys.argv
    forks.MAX_WAIT_S = FORK_WAIT_S
    forks.MAX_STANDSTILL_S = 2 * FORK_WAIT_S
    forks.MAX_CLOSING_S = FORK_WAIT_S / 2
    forks.MAX_TIMER_WAIT_S = FORK_WAIT_S
    forks.MAX_ENDING_S = ENDING_WAIT_S
    sync = scenario == "sync"
    found = sync_clients(bootstrap) if sync else asyncio.run(async_clients(bootstrap))
    sys.stdout.write(json.dumps(found))
