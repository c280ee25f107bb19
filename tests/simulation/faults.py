"""What goes wrong in a run: which kinds there are, and the plan that a seed draws.

A fault is plain data, so that a plan can be printed, shortened and run again. A plan keeps
to what the design tolerates: one machine at most loses data, unless all reboot at once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

FIRST_FAULT_MS = 4_000
LAST_FAULT_MS = 42_000
LAST_END_MS = 50_000
MIN_FAULTS = 6
MAX_FAULTS = 12
# Of the kinds, a seed uses this share: what is rare meets what is rare more often.
USED_KINDS = 0.6
# All machines at once: what is lost then is legitimately lost, and has to be marked.
REBOOT_ALL_SHARE = 0.15

Args: TypeAlias = "tuple[int | str, ...]"


_FAULT = re.compile(r"(?P<at>\d+) ms: (?P<kind>\w+)\((?P<args>.*)\) for (?P<duration>\d+) ms")


class Fault(NamedTuple):
    """`args`: as its kind has them, in KINDS; what is drawn while it lasts comes from a
    random of its own."""

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
    """What a plan is drawn for. `loser`: the one broker whose machine may lose data."""

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
    """Reads what `str(fault)` writes. Raises ValueError."""
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
        tuple(int(a) if a.isdecimal() else a for a in args),
        int(match["duration"]),
    )


Draw: TypeAlias = "Callable[[random.Random, Cluster], Args]"


class Kind(NamedTuple):
    """How a fault of this kind is drawn. `durations_ms`: shortest and longest."""

    args: Draw
    durations_ms: tuple[int, int]
    weight: float = 1.0


def _scope(rng: random.Random, cluster: Cluster) -> str:
    """A host whose links are concerned, or all."""
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


def _pair(rng: random.Random, cluster: Cluster) -> Args:
    """Two brokers, or a broker and a controller; in either order."""
    if rng.random() < 0.7:
        return _two_brokers(rng, cluster)
    pair = [cluster.broker(rng), cluster.controller(rng)]
    rng.shuffle(pair)
    return tuple(pair)


def _half_cut(rng: random.Random, cluster: Cluster) -> Args:
    """A host, whom it is cut from, and whether nothing comes in or nothing goes out."""
    far = rng.choice(("etcd", "etcd", "controllers", "brokers"))
    host = cluster.host(rng) if far == "etcd" else cluster.broker(rng)
    return host, far, rng.choice(("in", "out"))


KINDS: dict[str, Kind] = {
    # The network: of a host's links, or of all; in stories also of one direction ("a>b").
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
    # Whoever leads most then, from all other brokers: in and out, or one of them.
    "cut_leader": Kind(
        lambda r, _: (r.choice(("both", "both", "in", "out")),), (5_000, 14_000), 1.5
    ),
    "cut_off": Kind(_one_host, (500, 9_000)),
    # Processes. A short one restarts within its lease.
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
    # The store.
    "etcd_away": Kind(_nothing, (500, 8_000)),
    "etcd_leaderless": Kind(_nothing, (500, 6_000)),
    "lost_answers": Kind(lambda r, _: (r.randint(10, 70),), (1_000, 8_000), 1.5),
    "watch_loss": Kind(_one_host, (200, 4_000)),
    "compaction": Kind(_nothing, (500, 5_000)),
    # Disks.
    "failed_fsync": Kind(lambda r, c: (f"broker-{c.loser}", r.randint(1, 2)), (500, 6_000)),
    "disk_full": Kind(lambda r, c: (c.broker(r), r.randint(0, 2_000)), (500, 6_000)),
    "bit_flip": Kind(_the_loser, (0, 0)),
    # Metadata.
    "topic_deleted": Kind(lambda r, _: (r.randint(1, 3),), (500, 6_000)),
    "topic_recreated": Kind(lambda r, _: (r.randint(1, 3),), (500, 6_000), 1.5),
    # To the loss of records, of topics that are recovered by hand.
    "consent": Kind(
        lambda r, _: (r.choice(("last_known", "last_known", "live_replicas")),), (500, 8_000)
    ),
}


class Size(Protocol):
    """Of a world."""

    @property
    def brokers(self) -> int: ...

    @property
    def controllers(self) -> int: ...


def _stale_joiner(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A follower is away until its lease has run out, and is back before the leader, which
    watches nothing, has heard of it: it would join in a life that is over."""
    away = rng.randint(1, cluster.brokers)
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != away]
    return [
        Fault(at_ms, "pause_broker", (f"broker-{away}",), rng.randint(3_200, 4_500)),
        *(Fault(at_ms + 800, "watch_loss", (other,), 6_000) for other in others),
    ]


def _slow_hand_over(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker is told to stop while the controllers hear little and late."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    return [
        Fault(at_ms - 200, "delay", (rng.randint(500, 3_000), "etcd"), 8_000),
        Fault(at_ms, "shut_down", (cluster.broker(rng),), rng.randint(500, 6_000)),
    ]


def _bounced_leader(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker restarts at once, and what the controllers told its former life comes late
    and twice."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    broker = cluster.broker(rng)
    return [
        Fault(at_ms - 1_000, "reorder", (50, broker), 6_000),
        Fault(at_ms - 1_000, "repeat", (60, broker), 6_000),
        Fault(at_ms, "crash_broker", (broker,), rng.randint(50, 400)),
        Fault(at_ms + rng.randint(500, 3_000), "crash_broker", (broker,), rng.randint(50, 400)),
    ]


def _late_deletion(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A topic goes while the controllers' commands come late and twice; the controller that
    deletes it may go as well."""
    del cluster
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 12_000)
    lasting_ms = rng.randint(800, 3_000)
    kind = rng.choice(("topic_deleted", "topic_recreated"))
    story = [
        Fault(at_ms, "repeat", (60, "all"), 10_000),
        Fault(at_ms, "reorder", (30, "all"), 7_000),
        Fault(at_ms + 500, kind, (rng.randint(1, 3),), lasting_ms),
    ]
    if rng.random() < 0.6:
        crash_ms = at_ms + 500 + lasting_ms + rng.randint(0, 400)
        story.append(Fault(crash_ms, "crash_active_controller", (), rng.randint(500, 4_000)))
    return story


def _restarted_twice(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """While no controller runs, a machine reboots and its broker restarts once more."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 8_000)
    loser = f"broker-{cluster.loser}"
    return [
        *(
            Fault(at_ms, "crash_controller", (f"controller-{n}",), 6_000)
            for n in range(1, cluster.controllers + 1)
        ),
        Fault(at_ms + 200, "reboot", (loser,), rng.randint(300, 800)),
        Fault(at_ms + rng.randint(2_500, 4_500), "crash_broker", (loser,), rng.randint(50, 400)),
    ]


def _emptied_follower(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker is back without its data, and fetches slowly, while fetches of its former life
    still arrive."""
    at_ms = rng.randint(FIRST_FAULT_MS + 2_000, LAST_FAULT_MS - 8_000)
    loser = f"broker-{cluster.loser}"
    return [
        Fault(at_ms - 2_000, "repeat", (60, loser), 6_000),
        Fault(at_ms, rng.choice(("empty_disk", "reboot")), (loser,), rng.randint(300, 900)),
        *(
            Fault(at_ms + 100, "delay", (rng.randint(500, 2_500), f"broker-{n}>{loser}"), 8_000)
            for n in range(1, cluster.brokers + 1)
        ),
    ]


def _late_removal(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker restarts while whatever the controllers write comes late."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 8_000)
    return [
        *(
            Fault(at_ms - 200, "delay", (rng.randint(500, 3_000), f"controller-{n}>etcd"), 8_000)
            for n in range(1, cluster.controllers + 1)
        ),
        Fault(at_ms, "crash_broker", (cluster.broker(rng),), rng.randint(200, 1_500)),
    ]


def _deposed_and_back(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A leader that cannot reach its followers is deposed, and leads again at once."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 8_000)
    loser = f"broker-{cluster.loser}"
    other = f"broker-{cluster.loser % cluster.brokers + 1}"
    return [
        Fault(at_ms, "cut_from_brokers", (loser,), rng.randint(400, 900)),
        Fault(at_ms + 200, "failed_fsync", (loser, 2), 1_000),
        Fault(at_ms + rng.randint(1_200, 2_500), "crash_broker", (other,), rng.randint(300, 1_000)),
    ]


def _zombie_leader(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A leader that has lost etcd goes on to tell that it leads, while clients look for
    another because those fail."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    zombie = rng.randint(1, cluster.brokers)
    others = [n for n in range(1, cluster.brokers + 1) if n != zombie]
    return [
        Fault(at_ms, "cut_from_etcd", (f"broker-{zombie}",), 9_000),
        *(
            Fault(at_ms + 4_800 + 1_500 * i, "crash_broker", (f"broker-{n}",), rng.randint(50, 900))
            for i, n in enumerate(others)
        ),
    ]


def _unanswered_change(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A follower that was cut off joins again while leaders hear nothing of what the store
    has taken, not from the controllers either."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    away_ms = rng.randint(3_000, 3_800)
    deaf_ms = at_ms + away_ms - rng.randint(100, 300)
    brokers = range(1, cluster.brokers + 1)
    return [
        Fault(at_ms, "cut_from_brokers", (cluster.broker(rng),), away_ms),
        Fault(deaf_ms, "lost_answers", (95,), 6_000),
        *(Fault(deaf_ms, "watch_loss", (f"broker-{n}",), 6_000) for n in brokers),
        *(
            Fault(deaf_ms, "cut_one_way", (f"controller-{c}", f"broker-{n}"), 6_000)
            for c in range(1, cluster.controllers + 1)
            for n in brokers
        ),
    ]


def _crashed_again_and_again(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker crashes, within a minute, more often than it is removed at once for it."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    broker = cluster.broker(rng)
    return [
        Fault(
            at_ms + i * rng.randint(3_500, 4_500), "crash_broker", (broker,), rng.randint(50, 400)
        )
        for i in range(4)
    ]


def _emptied_within_lease(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker is back on an empty disk before anybody has noticed that it was gone: its id
    belongs to the node that it was."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 8_000)
    loser = f"broker-{cluster.loser}"
    return [
        Fault(at_ms - 300, "cut_from_controllers", (loser,), rng.randint(2_500, 4_000)),
        Fault(at_ms, "empty_disk", (loser,), rng.randint(50, 400)),
    ]


def _deaf_at_its_stop(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker that is told to stop does not hear that it has handed over."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    broker = cluster.broker(rng)
    return [
        *_deafness(broker, at_ms - 200, 8_000, cluster),
        Fault(at_ms, "shut_down", (broker,), rng.randint(300, 4_000)),
    ]


def _deaf_leader(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A leader does not hear of its new epochs, in which a follower fetches that has given
    them by its resignations; a crash of the third makes clients ask for metadata, and so
    they know these epochs, too."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 12_000)
    loser = f"broker-{cluster.loser}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    deaf = rng.choice(others)
    third = next(other for other in others if other != deaf)
    return [
        *_deafness(deaf, at_ms, 9_000, cluster),
        # It would read why the store refuses its next change of an ISR.
        Fault(at_ms, "lost_answers", (90,), 9_000),
        Fault(at_ms + 200, "failed_fsync", (loser, 8), 6_500),
        Fault(at_ms + rng.randint(6_000, 7_500), "crash_broker", (third,), rng.randint(50, 400)),
    ]


def _half_taken_command(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """While a broker hands over what it leads, its answers to followers come late, and these
    stand still: they find a command and an answer of their former leader together."""
    first, second = rng.sample(range(1, cluster.brokers + 1), 2)
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    return [
        fault
        for stopping, at_ms in ((first, at_ms), (second, at_ms + 9_000))
        for fault in _paused_hand_over(rng, cluster, stopping, at_ms)
    ]


def _recovered_by_hand(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """All reboot; somebody consents, and the controller that was told may go."""
    del cluster
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 12_000)
    down_ms = rng.randint(300, 2_000)
    asked_ms = at_ms + down_ms + rng.randint(500, 6_000)
    story = [
        Fault(at_ms, "reboot_all", (), down_ms),
        Fault(asked_ms, "consent", ("last_known",), rng.randint(500, 4_000)),
    ]
    if rng.random() < 0.5:
        crash_ms = asked_ms + rng.randint(0, 150)
        story.append(Fault(crash_ms, "crash_active_controller", (), rng.randint(500, 4_000)))
    return story


def _given_up(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A follower is cut off until it has left the ISRs; when all others are down, somebody
    consents to its leading, or to the best of them all, who then prove to be whole."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    left = rng.randint(1, cluster.brokers)
    others = [n for n in range(1, cluster.brokers + 1) if n != left]
    given_up = rng.choice(("last_known", "live_replicas"))
    story = [
        Fault(at_ms, "cut_from_brokers", (f"broker-{left}",), 5_500),
        *(
            Fault(at_ms + 4_500 + rng.randint(0, 800), "crash_broker", (f"broker-{n}",), 6_500)
            for n in others
        ),
        Fault(at_ms + rng.randint(5_800, 6_500), "consent", (given_up,), 2_500),
    ]
    if rng.random() < 0.5:
        story.append(Fault(at_ms + 7_000, "crash_active_controller", (), rng.randint(300, 2_000)))
    return story


def _paused_hand_over(
    rng: random.Random, cluster: Cluster, stopping: int, at_ms: int
) -> list[Fault]:
    host = f"broker-{stopping}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != stopping]
    delay_ms = rng.randint(300, 1_500)
    return [
        *(Fault(at_ms - 1_500, "delay", (delay_ms, f"{host}>{other}"), 4_000) for other in others),
        *(
            Fault(at_ms - rng.randint(0, 100), "pause_broker", (other,), rng.randint(600, 1_500))
            for other in others
        ),
        Fault(at_ms, "shut_down", (host,), rng.randint(300, 4_000)),
    ]


def _deafness(broker: str, at_ms: int, duration_ms: int, cluster: Cluster) -> list[Fault]:
    """It hears nothing from the controllers, nor of what the store has taken."""
    return [
        Fault(at_ms, "watch_loss", (broker,), duration_ms),
        *(
            Fault(at_ms, "cut_one_way", (f"controller-{n}", broker), duration_ms)
            for n in range(1, cluster.controllers + 1)
        ),
    ]


# Faults that are dangerous together, at times that chance would seldom find.
STORIES: tuple[Callable[[random.Random, Cluster], list[Fault]], ...] = (
    _stale_joiner,
    _slow_hand_over,
    _bounced_leader,
    _late_deletion,
    _restarted_twice,
    _emptied_follower,
    _late_removal,
    _deposed_and_back,
    _zombie_leader,
    _unanswered_change,
    _crashed_again_and_again,
    _emptied_within_lease,
    _deaf_at_its_stop,
    _deaf_leader,
    _half_taken_command,
    _recovered_by_hand,
    _given_up,
)
STORY_SHARE = 0.9


def draw_plan(seed: int, size: Size) -> list[Fault]:
    """In the order in which they begin."""
    rng = random.Random(f"{seed}/plan")
    cluster = Cluster(size.brokers, size.controllers, loser=rng.randint(1, size.brokers))
    names = [name for name, kind in KINDS.items() if kind.weight]
    used = sorted(rng.sample(names, round(len(names) * USED_KINDS)), key=names.index)
    weights = [KINDS[name].weight for name in used]
    chosen = rng.choices(used, weights, k=rng.randint(MIN_FAULTS, MAX_FAULTS))
    if rng.random() < REBOOT_ALL_SHARE:
        chosen.append("reboot_all")
    plan = [draw_fault(name, rng, cluster) for name in chosen]
    if rng.random() < STORY_SHARE:
        plan += rng.choice(STORIES)(rng, cluster)
    return sorted(plan)


def draw_fault(name: str, rng: random.Random, cluster: Cluster) -> Fault:
    kind = KINDS[name]
    shortest, longest = kind.durations_ms
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS)
    # As many short ones as long ones, on a scale of factors.
    duration_ms = round(shortest * (longest / shortest) ** rng.random()) if shortest else 0
    return Fault(at_ms, name, kind.args(rng, cluster), min(duration_ms, LAST_END_MS - at_ms))


def may_lose_acknowledged(plan: Sequence[Fault]) -> bool:
    """Whether more replicas may lose data, or are given up, than a factor of 3 with min ISR 2
    tolerates."""
    return any(
        fault.kind == "reboot_all" or (fault.kind == "consent" and "live_replicas" in fault.args)
        for fault in plan
    )
