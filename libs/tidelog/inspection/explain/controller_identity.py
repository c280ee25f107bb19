"""Controller ids that two processes claim."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import ago
from tidelog.inspection.model import Finding


def contested(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each id. The waiting process has a record in the store."""
    for waiting in _waiting(view):
        controller_id, first, second = _named(waiting)
        yield Finding(
            causes.CONTROLLER_ID_CONTESTED,
            causes.WARNING,
            f"two processes claim controller id {controller_id}: the one at {first} is registered, "
            f"and the one at {second} waits for that registration to end and cannot take over",
            (
                f"the registered process: at {first}",
                f"the other process: at {second}; it began to wait "
                f"{ago(waiting.since_ms, view.now_ms())}",
            ),
            f"No data is at risk. Stop the process at {second}, and start it with a controller_id "
            "of its own where it is to be one more controller. Where it is to replace the one at "
            f"{first}, stop that one: the other takes the id by itself.",
        )


def _named(waiting: WaitingController) -> tuple[int, str, str]:
    """Returns the id, the registered process and the one that waits."""
    return (
        waiting.controller_id,
        _place(waiting.registered_address, waiting.registered_host),
        _place(waiting.address, waiting.host),
    )


def _place(address: str, host: str) -> str:
    return f"{address} on {host}" if host else address


def _waiting(view: ClusterView) -> list[WaitingController]:
    """Returns them ordered by id. Controllers that see changes of the store come first."""
    found: dict[int, WaitingController] = {}
    if view.active is not None:
        return sorted(view.control.waiting_controllers, key=lambda w: w.controller_id)
    for state in sorted(view.controllers, key=lambda s: s.store.unreachable_ms >= 0):
        for waiting in state.controller.waiting_controllers if state.controller else ():
            found.setdefault(waiting.controller_id, waiting)
    return [waiting for _, waiting in sorted(found.items())]
