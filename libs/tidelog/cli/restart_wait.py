"""Waits until a broker may be stopped: for `tidelog brokers check-restart --wait`, which a broker's
pod calls before it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.cli.exit_status import TimedOutError
from tidelog.cli.output import ids_text, write_note
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.admin_messages import BrokerDetails, RestartCheck
    from tidelog.client import Admin

POLL_SECONDS = 1.0
DEFAULT_WAIT_SECONDS = 300.0
# A broker that stops between two requests is seen by the next round at the latest. So a verdict
# that waiting cannot improve needs as many equal rounds.
ROUNDS_OF_A_FINAL_VERDICT = 3


async def wait_for_restart(
    admin: Admin,
    broker_id: int,
    timeout_seconds: float,
    sleep: Callable[[float], Awaitable[None]] | None = None,
) -> RestartCheck:
    """Returns the check once every other broker is running and in sync in all its partitions.

    The check may then still be unsafe: a topic has too few replicas, whatever time passes. Raises
    `TimedOutError`, which names the last obstacle, and a `TidelogError` that waiting cannot cure.
    """
    import asyncio

    pause = sleep or asyncio.sleep
    obstacle = shown = "no controller has answered"
    final_rounds = 0
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                found, check = await _round(admin, broker_id)
                if check is not None:
                    final_rounds += 1
                    if check.safe or final_rounds == ROUNDS_OF_A_FINAL_VERDICT:
                        return check
                else:
                    final_rounds, obstacle = 0, found
                    if obstacle != shown:
                        write_note(f"Broker {broker_id} waits: {obstacle}.")
                    shown = obstacle
                await pause(POLL_SECONDS)
    except TimeoutError:
        raise TimedOutError(
            f"broker {broker_id} cannot be stopped without harm after {timeout_seconds:g} s: "
            f"{obstacle}; find the cause with: tidelog explain"
        ) from None


async def _round(admin: Admin, broker_id: int) -> tuple[str, RestartCheck | None]:
    """Returns what keeps the broker from being stopped, or the check if nothing does."""
    from tidelog.rpc.status import UnreachableError

    try:
        obstacles = list(obstacles_of(await admin.describe_brokers(), broker_id))
        if obstacles:
            return "; ".join(obstacles), None
        # Last, so that it knows brokers that have begun to stop since.
        return "", await admin.check_restart(broker_id)
    except UnreachableError as error:
        return str(error), None
    except TidelogError as error:
        if not error.retriable:
            raise
        return error.message, None


def obstacles_of(brokers: list[BrokerDetails], broker_id: int) -> Iterator[str]:
    """Yields what keeps ISRs from being full, apart from the broker itself."""
    others = [broker for broker in brokers if broker.broker_id != broker_id]
    away = [b.broker_id for b in others if b.status != "running" and b.replicas]
    if away:
        yield f"brokers with replicas that are not running: {ids_text(away)}"
    behind = [b for b in others if b.out_of_sync and b.broker_id not in away]
    if behind:
        count = sum(broker.out_of_sync for broker in behind)
        where = ids_text([broker.broker_id for broker in behind])
        yield f"replicas out of sync: {count:,}, on brokers {where}"
