"""The kinds of faults, and how each is drawn.

A fault is plain data, so that a plan can be printed, shortened and run again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

FIRST_FAULT_MS = 4_000
LAST_FAULT_MS = 42_000
LAST_END_MS = 50_000

HOUR_MS = 3_600_000
# Measured from the time of day at which worlds begin.
TO_1970_MS, TO_2099_MS = -1_699_990_000_000, 2_370_908_800_000

Args: TypeAlias = "tuple[int | str, ...]"


_FAULT = re.compile(r"(?P<at>\d+) ms: (?P<kind>\w+)\((?P<args>.*)\) for (?P<duration>\d+) ms")


class Fault(NamedTuple):
    """A fault of a plan.

    - `args`: as its kind has them, in KINDS

    What is drawn while the fault lasts comes from a random generator of its own.
    """

    at_ms: int
    kind: str
    args: Args
    duration_ms: int

    @property
    def end_ms(self) -> int:
        return self.at_ms + self.duration_ms

    def __str__(self) -> str:
        args = ", ".join(map(str, self.args))
        return f"{self.at_ms} ms: {self.kind}({args}) for {self.duration_ms} ms"


class Cluster(NamedTuple):
    """The cluster for which a plan is drawn.

    - `loser`: the only broker whose machine may lose data
    """

    brokers: int
    controllers: int
    loser: int

    def broker(self, rng: random.Random) -> str:
        return f"broker-{rng.randint(1, self.brokers)}"

    def controller(self, rng: random.Random) -> str:
        return f"controller-{rng.randint(1, self.controllers)}"

    def host(self, rng: random.Random) -> str:
        return self.broker(rng) if rng.random() < 0.7 else self.controller(rng)


def parse_fault(line: str) -> Fault:
    """Parses what `str(fault)` writes. Raises ValueError."""
    match = _FAULT.fullmatch(line.strip())
    if match is None or match["kind"] not in KINDS:
        raise ValueError(
            f"{line.strip()!r} is no fault; one is written as '7684 ms: crash_broker(broker-1) "
            f"for 500 ms', and its kind is one of {', '.join(KINDS)}"
        )
    args = [argument for argument in match["args"].split(", ") if argument]
    return Fault(
        int(match["at"]),
        match["kind"],
        tuple(int(a) if a.removeprefix("-").isdecimal() else a for a in args),
        int(match["duration"]),
    )


Draw: TypeAlias = "Callable[[random.Random, Cluster], Args]"


class Kind(NamedTuple):
    """How a fault of this kind is drawn.

    - `durations_ms`: shortest and longest
    """

    args: Draw
    durations_ms: tuple[int, int]
    weight: float = 1.0


def _scope(rng: random.Random, cluster: Cluster) -> str:
    """Returns a host whose links are disturbed, or "all"."""
    return "all" if rng.random() < 0.4 else cluster.host(rng)


def _two_brokers(rng: random.Random, cluster: Cluster) -> Args:
    first, second = rng.sample(range(1, cluster.brokers + 1), 2)
    return f"broker-{first}", f"broker-{second}"


def _one_broker(rng: random.Random, cluster: Cluster) -> Args:
    return (cluster.broker(rng),)


def _one_host(rng: random.Random, cluster: Cluster) -> Args:
    return (cluster.host(rng),)


def _nothing(_rng: random.Random, _cluster: Cluster) -> Args:
    return ()


def _the_loser(_rng: random.Random, cluster: Cluster) -> Args:
    return (f"broker-{cluster.loser}",)


def _two_numbers(rng: random.Random, _cluster: Cluster) -> Args:
    """Returns two numbers, which choose among what exists when the fault begins."""
    return rng.randrange(1_000), rng.randrange(1_000)


def _pair(rng: random.Random, cluster: Cluster) -> Args:
    """Returns two brokers, or a broker and a controller, in either order."""
    if rng.random() < 0.7:
        return _two_brokers(rng, cluster)
    pair = [cluster.broker(rng), cluster.controller(rng)]
    rng.shuffle(pair)
    return tuple(pair)


def _half_cut(rng: random.Random, cluster: Cluster) -> Args:
    """Returns a host, what it is cut from, and the direction that is cut."""
    far = rng.choice(("etcd", "etcd", "controllers", "brokers"))
    host = cluster.host(rng) if far == "etcd" else cluster.broker(rng)
    return host, far, rng.choice(("in", "out"))


def _clock_jump(rng: random.Random, cluster: Cluster) -> Args:
    """Returns a jump of one machine's clock, so that most clocks are right."""
    hours = rng.randint(1, 72) * HOUR_MS
    jump_ms = rng.choice((hours, -hours, TO_1970_MS, TO_2099_MS))
    return f"broker-{cluster.loser}", jump_ms


KINDS: dict[str, Kind] = {
    # The network: the links of a host, or all links; in stories also one direction ("a>b").
    "loss": Kind(lambda r, c: (r.randint(2, 30), _scope(r, c)), (500, 8_000)),
    "delay": Kind(lambda r, c: (r.randint(20, 1_500), _scope(r, c)), (500, 8_000)),
    "repeat": Kind(lambda r, c: (r.randint(10, 60), _scope(r, c)), (2_000, 12_000), 1.5),
    "reorder": Kind(lambda r, c: (r.randint(5, 40), _scope(r, c)), (1_000, 10_000)),
    "cut_pair": Kind(_pair, (300, 9_000)),
    "cut_one_way": Kind(_pair, (300, 9_000)),
    "cut_from_etcd": Kind(_one_host, (500, 9_000), 1.5),
    "cut_from_controllers": Kind(_one_broker, (500, 9_000)),
    "cut_from_brokers": Kind(_one_broker, (500, 9_000), 1.5),
    "half_cut": Kind(_half_cut, (500, 9_000), 1.5),
    # The broker that leads most partitions, from all other brokers: in and out, or one of them.
    "cut_leader": Kind(
        lambda r, _: (r.choice(("both", "both", "in", "out")),), (5_000, 14_000), 1.5
    ),
    "cut_off": Kind(_one_host, (500, 9_000)),
    # Processes. After a short crash a process restarts within its lease.
    "crash_broker": Kind(_one_broker, (50, 6_000), 2.0),
    "crash_controller": Kind(lambda r, c: (c.controller(r),), (50, 6_000)),
    "crash_active_controller": Kind(_nothing, (50, 6_000), 1.5),
    "pause_broker": Kind(_one_broker, (200, 9_000), 2.0),
    "pause_controller": Kind(lambda r, c: (c.controller(r),), (200, 9_000)),
    "shut_down": Kind(_one_broker, (300, 6_000), 2.0),
    # Machines.
    "reboot": Kind(_the_loser, (300, 5_000), 1.5),
    "reboot_all": Kind(_nothing, (300, 3_000), 0.0),
    "empty_disk": Kind(_the_loser, (300, 5_000)),
    # Data directories: a second process of a broker's id, on an empty one or on a copy; and a
    # directory that is restored from an older copy, or replaced for a while.
    "second_process": Kind(_one_broker, (2_000, 9_000)),
    "copied_directory": Kind(_the_loser, (3_000, 12_000)),
    "restored_directory": Kind(_the_loser, (1_000, 8_000)),
    "swapped_directory": Kind(_the_loser, (2_000, 8_000), 0.5),
    # The store.
    "etcd_away": Kind(_nothing, (500, 8_000)),
    "etcd_leaderless": Kind(_nothing, (500, 6_000)),
    "lost_answers": Kind(lambda r, _: (r.randint(10, 70),), (1_000, 8_000), 1.5),
    "watch_loss": Kind(_one_host, (200, 4_000)),
    "compaction": Kind(_nothing, (500, 5_000)),
    # A broker uses a backup of the store, made when this begins.
    "store_restored": Kind(_one_broker, (5_000, 9_000)),
    # Disks.
    "failed_fsync": Kind(lambda r, c: (f"broker-{c.loser}", r.randint(1, 2)), (500, 6_000)),
    "disk_error": Kind(
        lambda r, c: (f"broker-{c.loser}", r.choice(("read", "write")), r.randint(1, 2)),
        (500, 6_000),
    ),
    "disk_full": Kind(lambda r, c: (c.broker(r), r.randint(0, 2_000)), (500, 12_000)),
    # In stories also at the "leader" of the synced topic.
    "disk_hang": Kind(lambda r, c: (c.broker(r), r.choice(("syncs", "all"))), (500, 32_000), 0.5),
    "bit_flip": Kind(_the_loser, (0, 0)),
    "bad_sector": Kind(_the_loser, (0, 0), 0.5),
    # Wall clocks: changed by a number of milliseconds, and set back at the end.
    "clock_jump": Kind(_clock_jump, (2_000, 20_000)),
    # Metadata.
    "topic_deleted": Kind(lambda r, _: (r.randint(1, 3),), (500, 6_000)),
    "topic_recreated": Kind(lambda r, _: (r.randint(1, 3),), (500, 6_000), 1.5),
    "partitions_removed": Kind(lambda r, _: (r.randint(1, 2),), (3_000, 10_000), 1.5),
    # Directed faults, whose steps depend on the leader; in stories only, except those that `plans`
    # draws last. The number chooses a partition.
    "older_tail": Kind(lambda r, _: (r.randrange(1_000),), (12_000, 14_000), 0.0),
    "lost_join": Kind(lambda r, _: (r.randrange(1_000),), (14_000, 15_000), 0.0),
    "silent_successor": Kind(_nothing, (16_000, 17_000), 0.0),
    "needless_consent": Kind(lambda r, _: (r.randrange(1_000),), (17_000, 18_000), 0.0),
    "two_damages": Kind(lambda r, _: (r.randrange(1_000),), (8_000, 9_000), 0.0),
    "late_watch": Kind(lambda r, _: (r.randrange(1_000),), (18_000, 18_000), 0.0),
    "damaged_lone_leader": Kind(lambda r, _: (r.randrange(1_000),), (20_000, 20_000), 0.0),
    "unanswered_produce": Kind(lambda r, _: (r.randrange(1_000),), (8_000, 8_000), 0.0),
    # Moves of partitions to other replicas; in stories only. A move that is reversed or cancelled
    # is so when the fault ends.
    "move": Kind(_two_numbers, (500, 6_000), 0.0),
    "move_and_back": Kind(_two_numbers, (500, 6_000), 0.0),
    "move_cancelled": Kind(_two_numbers, (500, 6_000), 0.0),
    # The throttle of moves, in bytes per second: low, so that moves last.
    "throttled": Kind(lambda r, _: (r.randint(1_024, 4_096),), (2_000, 15_000), 0.0),
    # Consent to the loss of records, for topics that are recovered by hand.
    "consent": Kind(
        lambda r, _: (r.choice(("last_known", "last_known", "live_replicas")),), (500, 8_000)
    ),
    # A rolling upgrade to a release with another feature level; this process is the last one.
    "rolling_upgrade": Kind(_one_host, (18_000, 18_000), 0.0),
}


def draw_fault(name: str, rng: random.Random, cluster: Cluster) -> Fault:
    kind = KINDS[name]
    shortest, longest = kind.durations_ms
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS)
    # Uniform on a logarithmic scale: as many short durations as long ones.
    duration_ms = round(shortest * (longest / shortest) ** rng.random()) if shortest else 0
    return Fault(at_ms, name, kind.args(rng, cluster), min(duration_ms, LAST_END_MS - at_ms))
