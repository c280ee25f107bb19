"""Shortages that brokers report: open files, memory, CPU, connections, a slow disk, or too little
time for the scrub."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Reason, Root
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import since, span
from tidelog.inspection.resource_pressures import (
    CONNECTIONS,
    CPU,
    DISK,
    FILES,
    MEMORY,
    SCRUB,
    BrokerPressure,
    ResourcePressure,
    has_no_files_left,
)
from tidelog.units import size_text

CAUSES = {
    FILES: causes.OPEN_FILES,
    MEMORY: causes.MEMORY_SHORT,
    CPU: causes.CPU_STARVED,
    CONNECTIONS: causes.MANY_CONNECTIONS,
    DISK: causes.DISK_SLOW,
    SCRUB: causes.SCRUB_OVERDUE,
}
# The slow operation of a disk, if the broker does not name one.
_SYNC = "sync"
_RESOURCES = {cause: resource for resource, cause in CAUSES.items()}

_STEPS = {
    causes.DISK_SLOW: "Check what else uses the disk of {who} (iostat -x, iotop), the "
    "limits of its volume (operations or bytes per second), and the kernel's log of its machine. "
    "End what slows it, or give the broker another disk. It keeps up again by itself.",
    causes.OPEN_FILES: "Raise the limit of open files of {who} and restart it "
    "(LimitNOFILE= of a systemd unit, ulimit -n, --ulimit nofile= of a container; 65536 is "
    "usual), or for the running process: prlimit --pid PID --nofile=65536. If connections use "
    "them up, check the client that is named.",
    causes.MEMORY_SHORT: "Raise the memory limit of {who} (ulimit -v, or that of its "
    "container), or give it fewer partitions and smaller requests: at the limit its process ends.",
    causes.MANY_CONNECTIONS: "Check the client at that address: a process needs one connection "
    "to each broker. Let it share one client, or close those that it does not use; if many "
    "machines share the address, raise max_connections_per_client of {who}.",
    causes.CPU_STARVED: "Give {who} more CPU (cpu.max of its control group, its nice "
    "value), or end what else runs on its machine, or find what stops its process again and again "
    "(cpulimit, kill -STOP, a frozen control group, a machine that is suspended).",
    causes.SCRUB_OVERDUE: "Raise the setting of {who} that is named (scrub_cpu_percent or "
    "scrub_bytes_per_second) and restart it, or raise scrub_period_ms to what a pass takes. If the "
    "scrub has stopped, correct the error that is named. `tidelog brokers scrub --full-rate` "
    "checks everything now, without pauses.",
}
# Steps for services that are not brokers.
_OTHER_STEPS = {
    **_STEPS,
    causes.MEMORY_SHORT: "Raise the memory limit of {who} (ulimit -v, or that of its container): "
    "at the limit its process ends.",
    causes.MANY_CONNECTIONS: "Check the client at that address. Let it share connections, or "
    "close those that it does not use; if many machines share the address, raise "
    "max_connections_per_client of {who}.",
}
NEXT_STEP = {cause: step.replace("{who}", "broker {broker}") for cause, step in _STEPS.items()}


def next_step_of(cause: str, who: str) -> str:
    """`who`: a service that is not a broker."""
    return _OTHER_STEPS[cause].format(who=who)


def roots(view: ClusterView) -> Iterator[Root]:
    """Yields the shortages of brokers that run. A process that is gone uses nothing."""
    for broker_id, resource in sorted(view.pressures):
        if resource in CAUSES and view.liveness(broker_id) is not Liveness.DEAD:
            yield Root(CAUSES[resource], broker_id)


def connects_most(view: ClusterView, broker_id: int, address: str) -> bool:
    """Whether this is the client whose many connections the broker reports."""
    return is_of_client(view.pressure(broker_id, CONNECTIONS), address)


def is_of_client(pressure: ResourcePressure | None, address: str) -> bool:
    """Whether this is the client whose many connections are reported."""
    return pressure is not None and _same_host(pressure.detail.removeprefix("from "), address)


def _same_host(one: str, other: str) -> bool:
    """
    >>> _same_host("0:0:0:0:0:0:0:1", "::1"), _same_host("10.0.0.7", "10.0.0.8")
    (True, False)
    """
    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return one == other


def lacks_files(view: ClusterView, broker_id: int) -> bool:
    return has_no_files_left(view.pressure(broker_id, FILES))


def why_silent(view: ClusterView, broker_id: int) -> Reason | None:
    """Returns why a running process accepts no connection, or answers late."""
    unconnected = why_unconnected(view, broker_id)
    if unconnected is not None:
        return unconnected
    if view.pressure(broker_id, CPU) is not None:
        return Reason(Root(causes.CPU_STARVED, broker_id), "gets too little CPU to answer in time")
    # Slow writes to logs block the whole process; slow syncs do not.
    disk = view.pressure(broker_id, DISK)
    if disk is not None and disk.detail not in ("", _SYNC):
        return Reason(Root(causes.DISK_SLOW, broker_id), "waits for its slow disk")
    return None


def why_late(view: ClusterView, broker_id: int) -> Reason | None:
    """Returns why its writes are late, although it fetches."""
    if view.pressure(broker_id, DISK) is None:
        return None
    return Reason(Root(causes.DISK_SLOW, broker_id), "has a slow disk")


def why_unconnected(view: ClusterView, broker_id: int) -> Reason | None:
    """Returns why others cannot connect to it, although the network works."""
    if lacks_files(view, broker_id):
        root = Root(causes.OPEN_FILES, broker_id)
        return Reason(root, "has reached its limit of open files and accepts no new connection")
    if view.pressure(broker_id, CONNECTIONS) is not None:
        root = Root(causes.MANY_CONNECTIONS, broker_id)
        return Reason(root, "is busy with the connections of one client")
    return None


def summary(view: ClusterView, root: Root) -> str:
    pressure = view.pressures[root.broker, _RESOURCES[root.cause]]
    return shortage(root.cause, f"broker {root.broker}", pressure)


def shortage(cause: str, who: str, pressure: ResourcePressure) -> str:
    if cause == causes.OPEN_FILES:
        how = "has reached" if has_no_files_left(pressure) else "is near"
        uses = f"{pressure.used:,} of {pressure.limit:,} are open"
        return f"{who} {how} its limit of open files: {uses}{_detail(pressure)}"
    if cause == causes.MANY_CONNECTIONS:
        allowed = f"max_connections_per_client is {pressure.limit:,}"
        detail = f"{pressure.detail}; {allowed}" if pressure.detail else allowed
        return f"{who} holds {pressure.used:,} connections of one client ({detail})"
    if cause == causes.DISK_SLOW:
        operation = pressure.detail or _SYNC
        article = "an" if operation[0] in "aeiou" else "a"
        return f"the disk of {who} is slow: {article} {operation} takes {span(pressure.used)}"
    if cause == causes.SCRUB_OVERDUE:
        return (
            f"the scrub of {who} is overdue: its pass takes {span(pressure.used)}, and "
            f"scrub_period_ms is {span(pressure.limit)}; {pressure.detail}"
        )
    if cause == causes.MEMORY_SHORT:
        percent = pressure.used * 100 // max(1, pressure.limit)
        return (
            f"{who} is near its memory limit: it uses {percent} % of {size_text(pressure.limit)}"
            f"{_detail(pressure)}"
        )
    return (
        f"{who} gets too little CPU: within {span(pressure.limit)} it waited "
        f"{span(pressure.used)} for it{_detail(pressure)}"
    )


def evidence(view: ClusterView, root: Root) -> str:
    pressure = view.pressures[root.broker, _RESOURCES[root.cause]]
    if root.cause == causes.DISK_SLOW:
        return (
            f"broker-{root.broker} reports: operations of its disk have taken "
            f"{span(pressure.limit)} or longer {since(pressure.since_ms, view.now_ms())}, of late "
            f"a {pressure.detail or _SYNC} {span(pressure.used)}"
        )
    if root.cause == causes.SCRUB_OVERDUE:
        return (
            f"broker-{root.broker} reports: the pass of its scrub has run "
            f"{since(pressure.since_ms, view.now_ms())}; {pressure.detail}"
        )
    return reported(f"broker-{root.broker}", pressure, view.now_ms())


def reported(service: str, pressure: ResourcePressure, now_ms: int) -> str:
    return (
        f"{service} reports: {pressure.resource} {pressure.used:,} of {pressure.limit:,} "
        f"{since(pressure.since_ms, now_ms)}{_detail(pressure)}"
    )


def at_death(view: ClusterView, root: Root) -> BrokerPressure | None:
    """Returns the memory pressure that a dead broker reported until it ended."""
    return view.pressure(root.broker, MEMORY) if root.cause == causes.REPLICA_DEAD else None


def memory_at_death(view: ClusterView, root: Root) -> str:
    used = memory_at_end(at_death(view, root))
    return f"; {used}" if used else ""


def memory_at_end(memory: ResourcePressure | None) -> str:
    """Returns how much of its memory limit a process used when it ended, by its last report; "" if
    that reported no shortage of memory."""
    if memory is None:
        return ""
    percent = memory.used * 100 // max(1, memory.limit)
    return f"it used {percent} % of its memory limit when it ended"


def is_pressure(root: Root) -> bool:
    return root.cause in _RESOURCES


def _detail(pressure: ResourcePressure) -> str:
    return f" ({pressure.detail})" if pressure.detail else ""
