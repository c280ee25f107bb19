"""The orders in which the parts of a cluster get another release. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence


class Step(enum.StrEnum):
    """A part that gets the other release, or a stop of the roll between two parts.

    CONTROLLER: the standby one first, as long as one of them is left."""

    CONTROLLER = "controller"
    BROKER_1 = "broker-1"
    BROKER_2 = "broker-2"
    BROKER_3 = "broker-3"
    GATEWAY = "admin-api"
    CLIENTS = "clients"
    STOP_WITH_MIXED_CONTROLLERS = "stop with mixed controllers"
    STOP_WITH_MIXED_BROKERS = "stop with mixed brokers"

    @property
    def is_stop(self) -> bool:
        return self in (Step.STOP_WITH_MIXED_CONTROLLERS, Step.STOP_WITH_MIXED_BROKERS)


_CONTROLLERS = (Step.CONTROLLER, Step.STOP_WITH_MIXED_CONTROLLERS, Step.CONTROLLER)
_BROKERS = (Step.BROKER_1, Step.STOP_WITH_MIXED_BROKERS, Step.BROKER_2, Step.BROKER_3)

# `documented` is that of docs/operations/upgrades.md.
DOCUMENTED = "documented"
ORDERS: Mapping[str, Sequence[Step]] = {
    DOCUMENTED: (*_CONTROLLERS, *_BROKERS, Step.GATEWAY, Step.CLIENTS),
    "brokers-first": (*_BROKERS, *_CONTROLLERS, Step.GATEWAY, Step.CLIENTS),
    "gateway-first": (Step.GATEWAY, *_CONTROLLERS, *_BROKERS, Step.CLIENTS),
    "clients-first": (Step.CLIENTS, Step.GATEWAY, *_BROKERS, *_CONTROLLERS),
    # Controllers and brokers are mixed at the same time.
    "alternating": (
        Step.CONTROLLER,
        Step.BROKER_1,
        Step.STOP_WITH_MIXED_CONTROLLERS,
        Step.STOP_WITH_MIXED_BROKERS,
        Step.GATEWAY,
        Step.CLIENTS,
        Step.BROKER_2,
        Step.CONTROLLER,
        Step.BROKER_3,
    ),
}


def without_stops(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not step.is_stop]


def rolled_back(steps: Sequence[Step]) -> list[Step]:
    """The part that was changed last goes back first."""
    return without_stops(steps)[::-1]


def orders_of(runs: int, only: str = "") -> list[str]:
    """The order of each run: all of them in turn, or one of them repeatedly."""
    names = [only] if only else list(ORDERS)
    return [names[number % len(names)] for number in range(runs)]
