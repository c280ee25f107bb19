"""The kinds of faults: what each needs of a cluster, how long it lasts, and how long writes may
fail because of it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

# Brokers of the cluster; each partition has a replica on every one of them.
BROKERS = 3
# How late a write may be without any fault.
ORDINARY_GAP_MS = 250
# If writes are later than that without any fault, this machine determines how long writes take.
NOISY_GAP_MS = 1_000
# After the end of the lease: until the controller has elected another leader, and clients have
# found it.
AFTER_LEASE_MS = 1_000
AFTER_LEASE_OF_A_CRASH_MS = 2_000
CRASH_SHOWN_MS = 1_000
AFTER_LAG_MS = 1_000
HANDED_OVER_MS = 1_000
# Every second a broker reports the partitions that it could not write for a second.
DISK_REPORTED_MS = 2_000
# A rejected client pauses for up to 1 s: after the last rejection by the full leader, and again
# after that broker has answered that it no longer leads.
CLIENT_PAUSES_MS = 2_000
# The controller is informed, elects a leader, and clients find it.
AFTER_LAG_AND_REPORT_MS = 3_000
# After a deposition a partition waits before the next one, longer for each within a minute: before
# the fourth one longer than the distance of steps.
DEPOSITIONS_MEMORY_MS = 60_000
MAX_DEPOSITIONS = 3
MAX_REST_MS = 40_000


class Ability(enum.StrEnum):
    """A kind of impairment that a cluster can be given."""

    PROCESSES = "processes"
    CLIENT_RELAY = "a relay between clients and brokers"
    SERVICE_RELAY = "a relay in front of each broker, for services too"
    NETWORK = "rules in the network of each service"
    SECOND = "a second process under the id of a broker"
    FULL_DISK = "a disk that can be filled"
    DATA = "data directories that can be written while a broker is down"
    ETCD = "an etcd that can be killed as a whole"
    ETCD_MEMBERS = "an etcd of several members"
    CLOCK = "clocks that can be set"


class Timings(NamedTuple):
    """Timings of the cluster's configuration."""

    lease_ms: int
    lag_ms: int


class Circumstances(NamedTuple):
    """`ordinary_gap_ms`: the longest gap without any fault.
    `is_fence_ignored`: the controller logged that it left the broker to its lease, whatever
    connections show, because it had been removed too often recently.
    `depositions_ms`: how long before this strike each earlier strike that cut a leader off was
    over, those of the same fault included."""

    timings: Timings
    ordinary_gap_ms: int
    is_fence_ignored: bool = False
    depositions_ms: tuple[int, ...] = ()


class Bound(NamedTuple):
    limit_ms: int
    why: str


BoundOf = Callable[[Circumstances], Bound]


class Kind(NamedTuple):
    """`seconds`: its duration when it comes alone.
    `least_s`: how long it takes to have its effect.
    `bound`: None if the gap is only reported: fewer replicas than the min ISR may be left.
    `victims`: what it strikes, for people.
    `strikes`: how many brokers no other fault may strike meanwhile.
    `spares`: how many more must not be struck at all, because its effect needs them."""

    needs: Ability
    seconds: float
    victims: str
    bound: BoundOf | None = None
    deposes_leaders: bool = False
    strikes: int = 1
    spares: int = 0
    least_s: float = 0.0


def _crash(seen: Circumstances) -> Bound:
    """The bound of each crash, also if it occurs several times.

    The next occurrence waits until the cluster is intact. So two of three replicas are never away
    at once, and only the min ISR of two delays writes."""
    if seen.is_fence_ignored:
        limit = seen.timings.lease_ms + AFTER_LEASE_OF_A_CRASH_MS
        return Bound(limit, "lease time + 2 s: the controller reported recent removals")
    return Bound(CRASH_SHOWN_MS, "1 s, where the connection's end shows a crash")


def _silence(seen: Circumstances) -> Bound:
    return Bound(seen.timings.lease_ms + AFTER_LEASE_MS, "lease time + 1 s")


def _handed_over(_: Circumstances) -> Bound:
    return Bound(HANDED_OVER_MS, "1 s, where a leader gives up its partitions by itself")


def _disk_full(seen: Circumstances) -> Bound:
    """The leaderships are transferred once the controller has the report. Followed partitions are
    writable again once the broker has left their ISR, as for a cut-off follower: it fetches, and
    appends nothing."""
    led_ms = DISK_REPORTED_MS + HANDED_OVER_MS + CLIENT_PAUSES_MS
    followed_ms = seen.timings.lag_ms + AFTER_LAG_MS
    if led_ms >= followed_ms:
        return Bound(led_ms, "5 s: 2 s to report, 1 s to hand over, 2 s of clients' pauses")
    return Bound(followed_ms, "replica_lag_time_max_ms + 1 s, where a full broker follows")


def _follower_cut(seen: Circumstances) -> Bound:
    return Bound(seen.timings.lag_ms + AFTER_LAG_MS, "replica_lag_time_max_ms + 1 s")


def _leader_cut(seen: Circumstances) -> Bound:
    limit = seen.timings.lag_ms + AFTER_LAG_AND_REPORT_MS
    recent = sum(ago < DEPOSITIONS_MEMORY_MS for ago in seen.depositions_ms)
    if recent >= MAX_DEPOSITIONS:
        why = "replica_lag_time_max_ms + 3 s, after 40 s of rest: three depositions within a minute"
        return Bound(limit + MAX_REST_MS, why)
    return Bound(limit, "replica_lag_time_max_ms + 3 s")


def _unnoticed(seen: Circumstances) -> Bound:
    limit = max(seen.ordinary_gap_ms, ORDINARY_GAP_MS)
    return Bound(limit, "none, none_stirred or 250 ms, whichever is longest")


KINDS: dict[str, Kind] = {
    # Processes.
    "kill_leader": Kind(Ability.PROCESSES, 4, "the busiest leader", _crash),
    "stop_leader": Kind(Ability.PROCESSES, 4, "the busiest leader", _crash),
    "pause_leader": Kind(Ability.PROCESSES, 8, "the busiest leader", _silence),
    "pause_follower": Kind(
        Ability.PROCESSES, 8, "a follower of the busiest leader", _silence, spares=1
    ),
    # Another controller can win only after the lease of the first, 3 s, has ended.
    "kill_controller": Kind(
        Ability.PROCESSES, 5, "the active controller", _unnoticed, strikes=0, least_s=5
    ),
    "stop_controller": Kind(Ability.PROCESSES, 5, "the active controller", _unnoticed, strikes=0),
    "pause_controller": Kind(Ability.PROCESSES, 6, "the active controller", _unnoticed, strikes=0),
    "restart_all_brokers": Kind(Ability.PROCESSES, 1, "all brokers", strikes=BROKERS),
    # Broker ids.
    "start_second_process": Kind(
        Ability.SECOND, 3, "the busiest leader's id, by an empty directory", _unnoticed
    ),
    # It reports that it waits once the lease of a dead process, 3 s, would have ended. The report
    # ends with it, so an explanation, which takes up to 8 s, must fit in between.
    "start_copied_process": Kind(
        Ability.SECOND,
        12,
        "the busiest leader's id, by a copy of its directory",
        _unnoticed,
        least_s=12,
    ),
    "start_second_while_paused": Kind(
        Ability.SECOND,
        3,
        "the busiest leader's id while it is paused, by an empty directory",
        _silence,
    ),
    "take_over_by_copy": Kind(
        Ability.SECOND,
        5,
        "the busiest leader's id while it is paused, by a copy of its directory",
        _silence,
    ),
    # The network.
    # Where explain happens to query the leader first, it takes two rounds, up to 10 s in all.
    "cut_off_leader": Kind(Ability.NETWORK, 13, "the busiest leader, from all", _silence),
    "cut_follower": Kind(
        Ability.NETWORK, 8, "a follower, from one leader", _follower_cut, strikes=2
    ),
    "cut_leader_from_followers": Kind(
        Ability.NETWORK,
        10,
        "the busiest leader, from all followers",
        _leader_cut,
        deposes_leaders=True,
        spares=1,
    ),
    "cut_one_way": Kind(
        Ability.NETWORK,
        8,
        "the busiest leader, to which followers come no more",
        _leader_cut,
        deposes_leaders=True,
        spares=1,
    ),
    "cut_leader_from_etcd": Kind(Ability.NETWORK, 8, "the busiest leader, from etcd", _silence),
    # Lost packets are counted over 10 s, and an explanation takes up to 8 s.
    "drop_packets": Kind(Ability.NETWORK, 17, "the busiest leader, of whose packets some drop"),
    "delay_clients": Kind(Ability.CLIENT_RELAY, 8, "all clients, 100 ms each way", strikes=0),
    "cut_off_clients": Kind(Ability.CLIENT_RELAY, 5, "all clients, from the busiest leader"),
    "hang_answers": Kind(Ability.CLIENT_RELAY, 4, "clients, to which a leader's answers hang"),
    "delay_services": Kind(Ability.SERVICE_RELAY, 8, "every request to a leader, 100 ms each way"),
    # Disks. Below the min ISR nothing is written, so that a full disk has nothing to reject.
    "fill_disk": Kind(Ability.FULL_DISK, 8, "the busiest leader's disk", _disk_full, spares=1),
    "flip_bit": Kind(
        Ability.DATA,
        3,
        "a follower's segment, while it is down",
        _crash,
        spares=1,
    ),
    "flip_byte_of_leader": Kind(
        Ability.DATA,
        3,
        "a segment of the busiest leader, while it runs",
        _handed_over,
        spares=1,
    ),
    # The metadata store.
    "kill_etcd_member": Kind(
        Ability.ETCD_MEMBERS, 8, "an etcd member that follows", _unnoticed, strikes=0
    ),
    "kill_etcd_leader": Kind(Ability.ETCD_MEMBERS, 8, "the etcd leader", _unnoticed, strikes=0),
    "kill_all_etcd": Kind(Ability.ETCD, 60, "all of etcd", _unnoticed, strikes=0, least_s=10),
    # Clocks. Their effect shows in a record, which has to be committed.
    "skew_clock": Kind(Ability.CLOCK, 8, "the busiest leader's clock, by an hour", spares=1),
}


def left_out(
    abilities: frozenset[Ability], why: Mapping[Ability, str] = MappingProxyType({})
) -> dict[str, str]:
    """The kinds that a cluster with these abilities cannot suffer, each with the missing ability,
    and with `why` if the machine is the reason."""
    return {
        name: ": ".join(
            filter(None, (f"this cluster lacks {kind.needs.value}", why.get(kind.needs)))
        )
        for name, kind in KINDS.items()
        if kind.needs not in abilities
    }
