"""`make screenshots` (`python -m bench.console.screenshots [DIRECTORY]`): the pictures of the web
console in the documentation, taken in a real browser on a live cluster of five brokers under
load:

| file | content |
| --- | --- |
| `overview.png` | a healthy cluster |
| `plan.png` | the plan of adding a broker |
| `partition.png` | a replica that is copied to that broker |
| `moves.png` | all moves to that broker |
| `brokers.png` | the load of all brokers, dark |
| `trouble.png` | the explanation of a lost broker, dark |
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from playwright.async_api import Browser, expect

from bench.console.scene import POLL_S, READY_TIMEOUT_S, Scene, running_scene
from console.browser import running_browser
from console.console import Console, new_console
from tidelog.client import Producer

DIRECTORY = Path("docs/screenshots")
TOPICS: Mapping[str, int] = {
    "orders": 24,
    "payments": 12,
    "shipments": 12,
    "clicks": 48,
    "inventory": 6,
    "audit": 6,
}
BROKERS = 4
VICTIM = 3
RECORDS_PER_SECOND = 200.0
# Slow enough that the moves can be photographed.
MOVED_TOPIC = "orders"
MOVED_BYTES = 60_000_000
BATCH_BYTES = 60_000
THROTTLE_BYTES_PER_SECOND = 400_000
MOVED_SHARE = 0.3
END_TIMEOUT_S = 300.0
# Time until charts over time have content, and until the console shows a change.
SAMPLED_S = 20.0
SHOWN_S = 8.0
WIDTH_PX, HEIGHT_PX = 1280, 820
MAX_BYTES = 150_000


class Camera:
    """Takes pictures. Raises `RuntimeError` for one that is too large for the repository."""

    def __init__(self, browser: Browser, url: str, directory: Path) -> None:
        self._browser = browser
        self._url = url
        self._directory = directory

    @asynccontextmanager
    async def at(
        self, place: str, scheme: str = "light", height: int = HEIGHT_PX
    ) -> AsyncIterator[Console]:
        size = (WIDTH_PX, height)
        console = await new_console(self._browser, self._url, scheme, size)
        await console.open(place)
        yield console
        await console.close()

    async def take(self, console: Console, name: str) -> None:
        path = self._directory / f"{name}.png"
        await console.page.screenshot(path=path, animations="disabled", caret="hide")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise RuntimeError(f"{path} has {size:,} bytes, more than {MAX_BYTES:,}")
        sys.stdout.write(f"{path}: {size / 1000:.0f} kB\n")


async def take_all(directory: Path, target: Path) -> None:
    async with (
        running_scene(directory, TOPICS, brokers=BROKERS) as scene,
        running_browser() as browser,
    ):
        await fill(scene)
        camera = Camera(browser, scene.url, target)
        async with scene.written_to(RECORDS_PER_SECOND):
            async with camera.at("overview") as console:
                await asyncio.sleep(SAMPLED_S)
                await expect(console.page.get_by_text("All is well").first).to_be_visible()
                await camera.take(console, "overview")
            await capture_added_broker(scene, camera)
            async with camera.at("brokers", "dark", height=960) as console:
                await console.page.get_by_text("One cell is one replica").wait_for()
                await asyncio.sleep(SAMPLED_S / 4)
                await camera.take(console, "brokers")
            await capture_lost_broker(scene, camera)


async def fill(scene: Scene) -> None:
    """Fills the topics with the data that moves copy."""
    partitions = TOPICS[MOVED_TOPIC]
    values = [bytes(1_000)] * (BATCH_BYTES // 1_000)
    async with Producer(scene.cluster.bootstrap) as producer:
        for number in range(MOVED_BYTES // BATCH_BYTES):
            await producer.send_many(MOVED_TOPIC, values, partition=number % partitions)
        await producer.flush()


async def capture_added_broker(scene: Scene, camera: Camera) -> None:
    throttle = {"bytes_per_second": THROTTLE_BYTES_PER_SECOND}
    (await scene.rest.put("/v1/throttle", json=throttle)).raise_for_status()
    new = scene.cluster.add_broker()
    await scene.cluster.ready(READY_TIMEOUT_S)
    async with camera.at("brokers") as console:
        await console.page.get_by_text("not added").first.wait_for()
        await console.button("Add brokers…").click()
        await expect(console.dialog.get_by_label(f"Broker {new}")).to_be_checked()
        await console.dry_run()
        await camera.take(console, "plan")
        await console.button("Add them, and begin to move").click()
        await console.follow()
        operation = console.page.url.rpartition("/")[2]
        await capture_copied_replica(scene, camera, operation, new)
        await _until_moved(scene, operation, MOVED_SHARE)
        await camera.take(console, "moves")
    (await scene.rest.put("/v1/throttle", json={"bytes_per_second": None})).raise_for_status()
    await _until_moved(scene, operation, 1.0)
    await scene.until_healthy()


async def capture_copied_replica(scene: Scene, camera: Camera, operation: str, new: int) -> None:
    partition = await _until_copied(scene, operation)
    async with camera.at(f"topics/{MOVED_TOPIC}/{partition}", height=960) as console:
        await console.page.get_by_role("img", name=f"Broker {new}: catching up").wait_for()
        await asyncio.sleep(SHOWN_S)
        await camera.take(console, "partition")


async def _until_copied(scene: Scene, operation: str) -> int:
    """Returns a partition with data whose move is in progress. Raises `TimeoutError`."""
    async with asyncio.timeout(END_TIMEOUT_S):
        while True:
            moves = (await _json(scene, f"/v1/operations/{operation}/moves"))["items"]
            for one in moves:
                if one["state"] == "active" and one["move"]["topic"] == MOVED_TOPIC:
                    return int(one["move"]["partition"])
            await asyncio.sleep(POLL_S)


async def capture_lost_broker(scene: Scene, camera: Camera) -> None:
    async with camera.at("overview", "dark", height=960) as console:
        await asyncio.sleep(SAMPLED_S / 2)
        await scene.cluster.kill(VICTIM)
        await console.page.get_by_text("Problems and causes").wait_for()
        await expect(console.page.get_by_text(f"Broker {VICTIM} is gone").first).to_be_visible()
        await asyncio.sleep(SHOWN_S)
        await camera.take(console, "trouble")


async def _until_moved(scene: Scene, operation: str, share: float) -> None:
    """Waits until this share of the moves is done. Raises `TimeoutError`."""
    async with asyncio.timeout(END_TIMEOUT_S):
        while True:
            operation_state = await _json(scene, f"/v1/operations/{operation}")
            progress = operation_state["progress"]
            if (
                operation_state["ended_at_ms"]
                or progress["moves_done"] >= share * progress["moves"] > 0
            ):
                return
            await asyncio.sleep(POLL_S)


async def _json(scene: Scene, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await scene.rest.get(path)).raise_for_status().json()
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.console.screenshots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", type=Path, default=DIRECTORY, metavar="DIRECTORY")
    target = parser.parse_args(argv).target
    target.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-screenshots-"))
    try:
        uvloop.run(take_all(directory, target))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
