"""Choices of brokers in the dialog that moves partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from playwright.async_api import Locator

from console.console import Console


def brokers_of(console: Console) -> Locator:
    """The list of brokers for the replicas of the edited partition."""
    return console.dialog.get_by_role("group", name="Brokers", exact=True)


async def set_target(console: Console, brokers: Sequence[int]) -> None:
    """Chooses these brokers in this order, and no others, for the edited partition."""
    group = brokers_of(console)
    # Without the list, no broker would seem to be chosen.
    await group.wait_for()
    chosen = group.get_by_role("checkbox", checked=True)
    while await chosen.count():
        await chosen.first.uncheck()
    for broker in brokers:
        await group.get_by_role("checkbox", name=f"Broker {broker} ").check()


async def choose_replicas(
    console: Console, topic: str, targets: Mapping[int, Sequence[int]]
) -> None:
    """`targets`: the brokers of each partition, the preferred leader first."""
    await console.dialog.get_by_role("combobox", name="Topic").select_option(topic)
    for partition, brokers in targets.items():
        name = f"{topic}/{partition}"
        await console.dialog.get_by_role("checkbox", name=name, exact=True).check()
        await set_target(console, brokers)
