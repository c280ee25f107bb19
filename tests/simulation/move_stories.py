"""Stories in which partitions move while processes fail.

The controller, or a broker that is added, leaves or leads, may go at any step.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.faults import FIRST_FAULT_MS, LAST_FAULT_MS, Cluster, Fault

# The number of moves that begin together; several of one partition follow each other.
MOVES = (2, 6)
# The share of stories in which moves carry so little that they last for some seconds.
THROTTLED_SHARE = 0.6


def _moves(
    rng: random.Random,
    at_ms: int,
    kinds: tuple[str, ...] = ("move", "move_and_back"),
    throttled_share: float = THROTTLED_SHARE,
) -> list[Fault]:
    moves = [
        Fault(
            at_ms + rng.randint(0, 1_500),
            rng.choice(kinds),
            (rng.randrange(1_000), rng.randrange(1_000)),
            rng.randint(200, 5_000),
        )
        for _ in range(rng.randint(*MOVES))
    ]
    if rng.random() < throttled_share:
        moves.append(Fault(at_ms, "throttled", (rng.randint(1_024, 4_096),), 8_000))
    return moves


def _at_ms(rng: random.Random) -> int:
    return rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 12_000)


def _in_peace(rng: random.Random, cluster: Cluster) -> list[Fault]:
    del cluster
    return _moves(rng, _at_ms(rng), ("move", "move_and_back", "move_cancelled"))


def _without_its_controller(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """The controller goes at any of the steps, and perhaps the next one, too."""
    del cluster
    at_ms = _at_ms(rng)
    return [
        *_moves(rng, at_ms, ("move", "move_and_back", "move_cancelled")),
        *(
            Fault(
                at_ms + rng.randint(0, 4_000),
                "crash_active_controller",
                (),
                rng.randint(50, 4_000),
            )
            for _ in range(2)
        ),
    ]


def _without_a_broker(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker that leads, is added, leaves or stays is killed, paused, cut off or stopped."""
    at_ms = _at_ms(rng)
    kinds = ("crash_broker", "crash_broker", "pause_broker", "cut_from_brokers", "shut_down")
    return [
        *_moves(rng, at_ms),
        Fault(
            at_ms + rng.randint(0, 3_000),
            rng.choice(kinds),
            (cluster.broker(rng),),
            rng.randint(100, 6_000),
        ),
    ]


def _away_and_back(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Replicas leave and are assigned again while messages of controllers come late and twice."""
    del cluster
    at_ms = _at_ms(rng)
    story = [
        Fault(at_ms, "repeat", (60, "all"), 10_000),
        Fault(at_ms, "reorder", (30, "all"), 8_000),
        # At full speed, so that commands about the end of a replica come after its next beginning.
        *_moves(rng, at_ms + 300, ("move_and_back",), throttled_share=0),
        *_moves(rng, at_ms + 2_500, ("move_and_back",), throttled_share=0),
    ]
    if rng.random() < 0.5:
        crash_ms = at_ms + rng.randint(500, 5_000)
        story.append(Fault(crash_ms, "crash_active_controller", (), rng.randint(50, 2_000)))
    return story


def _taken_back_in_trouble(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Moves wait for a broker that is away, and are cancelled; another may go meanwhile."""
    at_ms = _at_ms(rng)
    away = cluster.broker(rng)
    story = [
        Fault(at_ms, rng.choice(("crash_broker", "cut_from_brokers")), (away,), 7_000),
        *_moves(rng, at_ms + 500, ("move_cancelled", "move_cancelled", "move")),
    ]
    if rng.random() < 0.5:
        crash_ms = at_ms + rng.randint(1_000, 6_000)
        story.append(Fault(crash_ms, "crash_broker", (cluster.broker(rng),), 1_500))
    return story


def _after_loss(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A machine loses data while its replicas are added, or stay."""
    at_ms = _at_ms(rng)
    loss = rng.choice(("reboot", "empty_disk"))
    return [
        *_moves(rng, at_ms),
        Fault(
            at_ms + rng.randint(0, 3_000), loss, (f"broker-{cluster.loser}",), rng.randint(300, 900)
        ),
    ]


def _too_few_to_go_back(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A move is cancelled while only one of its original replicas is in sync.

    The other one of the two is away, and belongs to the target, too.
    """
    kept, away, added, *_ = rng.sample(range(1, cluster.brokers + 1), cluster.brokers)
    partition = rng.choice(("sea/0", "sea/1", "sea/2", "lake/0"))
    at_ms = _at_ms(rng)
    return [
        Fault(at_ms, "move", (partition, f"{kept}-{away}"), 100),
        Fault(at_ms + 1_000, "crash_broker", (f"broker-{away}",), 8_000),
        Fault(at_ms + 1_500, "move_cancelled", (partition, f"{away}-{added}"), 4_500),
    ]


MOVE_STORIES: tuple[Callable[[random.Random, Cluster], list[Fault]], ...] = (
    _in_peace,
    _without_its_controller,
    _without_a_broker,
    _away_and_back,
    _taken_back_in_trouble,
    _after_loss,
    _too_few_to_go_back,
)
