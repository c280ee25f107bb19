"""Stories: faults that are dangerous together, at times that chance would seldom find.

Each brings about one of docs/internals/interleavings.md, or exercises one rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.directory_stories import DIRECTORY_STORIES
from simulation.disk_stories import DISK_STORIES
from simulation.faults import FIRST_FAULT_MS, LAST_FAULT_MS, Cluster, Fault


def _stale_joiner(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A follower is back before its leader, without a watch, learns that its lease has expired.

    It would join the ISR as an incarnation that is over.
    """
    away = rng.randint(1, cluster.brokers)
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != away]
    return [
        Fault(at_ms, "pause_broker", (f"broker-{away}",), rng.randint(3_200, 4_500)),
        *(Fault(at_ms + 800, "watch_loss", (other,), 6_000) for other in others),
    ]


def _slow_hand_over(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker stops while all that the controllers learn from the store comes late."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    return [
        Fault(at_ms - 200, "delay", (rng.randint(500, 3_000), "etcd"), 8_000),
        Fault(at_ms, "shut_down", (cluster.broker(rng),), rng.randint(500, 6_000)),
    ]


def _bounced_leader(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker restarts at once; commands to its previous incarnation come late and twice."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    broker = cluster.broker(rng)
    return [
        Fault(at_ms - 1_000, "reorder", (50, broker), 6_000),
        Fault(at_ms - 1_000, "repeat", (60, broker), 6_000),
        Fault(at_ms, "crash_broker", (broker,), rng.randint(50, 400)),
        Fault(at_ms + rng.randint(500, 3_000), "crash_broker", (broker,), rng.randint(50, 400)),
    ]


def _late_deletion(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A topic is deleted while commands come late and twice; the controller may crash as well."""
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


def _created_again(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A topic is created again after elections: epochs begin again, and clients know newer ones."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 13_000)
    crashed = rng.sample(range(1, cluster.brokers + 1), 2)
    return [
        Fault(at_ms, "topic_recreated", (rng.randint(1, 3),), rng.randint(8_000, 11_000)),
        *(
            Fault(
                at_ms + 2_000 + 3_000 * i, "crash_broker", (f"broker-{n}",), rng.randint(100, 1_500)
            )
            for i, n in enumerate(crashed)
        ),
    ]


def _removed_and_added_again(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Partitions are removed and added again while commands come late and twice.

    They have had other leaders. The controller may crash, and a broker may be away meanwhile.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    lasting_ms = rng.randint(7_000, 10_000)
    story = [
        Fault(at_ms, "partitions_removed", (rng.randint(1, 2),), lasting_ms),
        Fault(at_ms + 1_500, "crash_broker", (cluster.broker(rng),), rng.randint(50, 1_500)),
        Fault(at_ms + 2_500, "repeat", (60, "all"), 8_000),
        Fault(at_ms + 2_500, "reorder", (30, "all"), 6_000),
    ]
    if rng.random() < 0.5:
        crash_ms = at_ms + lasting_ms // 2 + rng.randint(0, 1_500)
        story.append(Fault(crash_ms, "crash_active_controller", (), rng.randint(200, 2_000)))
    if rng.random() < 0.5:
        away_ms = at_ms + lasting_ms // 2 - rng.randint(0, 800)
        story.append(
            Fault(away_ms, "pause_broker", (cluster.broker(rng),), rng.randint(500, 4_000))
        )
    return story


def _late_stops(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """All commands about a deleted topic come a second time, much later.

    By then a broker has restarted, and another controller is active.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    deleted_ms = at_ms + 1_500
    return [
        Fault(at_ms, "topic_deleted", (rng.randint(1, 3),), 1_500),
        *_second_hearing(rng, cluster, deleted_ms + rng.randint(300, 700)),
        # Another broker, so that the previous incarnations of two receive late commands.
        Fault(deleted_ms + rng.randint(800, 1_200), "crash_broker", (cluster.broker(rng),), 100),
    ]


def _late_questions(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Likewise after all have rebooted and report how far their logs reach.

    This happens three times, since chance often misses the moment.
    """
    first_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 34_000)
    return [
        fault
        for at_ms in (first_ms, first_ms + 12_000, first_ms + 24_000)
        for fault in (
            Fault(at_ms, "reboot_all", (), rng.randint(300, 600)),
            *_second_hearing(rng, cluster, at_ms + rng.randint(2_000, 2_600)),
        )
    ]


def _second_hearing(rng: random.Random, cluster: Cluster, crash_ms: int) -> list[Fault]:
    return [
        Fault(crash_ms - 2_500, "repeat", (95, "all"), 4_000),
        Fault(crash_ms, "crash_broker", (cluster.broker(rng),), rng.randint(50, 200)),
        Fault(crash_ms + 100, "crash_active_controller", (), rng.randint(500, 2_000)),
    ]


def _restarted_twice(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """While no controller runs, a machine reboots, and then its broker restarts again."""
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
    """A broker is back without its data and fetches slowly, while earlier fetches still arrive."""
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
    """A broker restarts while all that the controllers write comes late."""
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
    """A leader without etcd still claims to lead, while the others fail and clients search one."""
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
    """A cut-off follower joins again while leaders do not learn what the store has accepted.

    The controllers do not reach them either.
    """
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
    """A broker crashes more often within a minute than it is removed at once for it."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    broker = cluster.broker(rng)
    return [
        Fault(
            at_ms + i * rng.randint(3_500, 4_500), "crash_broker", (broker,), rng.randint(50, 400)
        )
        for i in range(4)
    ]


def _emptied_within_lease(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker is back on an empty disk within its lease; its id belongs to its old directory."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 8_000)
    loser = f"broker-{cluster.loser}"
    return [
        Fault(at_ms - 300, "cut_from_controllers", (loser,), rng.randint(2_500, 4_000)),
        Fault(at_ms, "empty_disk", (loser,), rng.randint(50, 400)),
    ]


def _deaf_at_its_stop(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker that stops does not learn that its leaderships were transferred."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    broker = cluster.broker(rng)
    return [
        *_deafness(broker, at_ms - 200, 8_000, cluster),
        Fault(at_ms, "shut_down", (broker,), rng.randint(300, 4_000)),
    ]


def _deaf_leader(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A leader does not learn of its new epochs, in which a follower fetches.

    The follower's resignations have caused these epochs. A crash of the third broker makes
    clients request metadata, and so they know these epochs, too.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 12_000)
    loser = f"broker-{cluster.loser}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    deaf = rng.choice(others)
    third = next(other for other in others if other != deaf)
    return [
        *_deafness(deaf, at_ms, 9_000, cluster),
        # It would learn the state when the store rejects its next ISR change.
        Fault(at_ms, "lost_answers", (90,), 9_000),
        Fault(at_ms + 200, "failed_fsync", (loser, 8), 6_500),
        Fault(at_ms + rng.randint(6_000, 7_500), "crash_broker", (third,), rng.randint(50, 400)),
    ]


def _half_taken_command(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Paused followers find a command and a late answer of a leader that stops together."""
    first, second = rng.sample(range(1, cluster.brokers + 1), 2)
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    return [
        fault
        for stopping, at_ms in ((first, at_ms), (second, at_ms + 9_000))
        for fault in _paused_hand_over(rng, cluster, stopping, at_ms)
    ]


def _recovered_by_hand(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """All reboot; an operator consents, and the controller that received it may crash."""
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
    """A follower has left the ISRs, the others crash, and a consent lets it lead.

    The controller may crash.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    left = rng.randint(1, cluster.brokers)
    others = [n for n in range(1, cluster.brokers + 1) if n != left]
    story = [
        Fault(at_ms, "cut_from_brokers", (f"broker-{left}",), 5_500),
        *(
            Fault(at_ms + 4_500 + rng.randint(0, 800), "crash_broker", (f"broker-{n}",), 6_500)
            for n in others
        ),
        Fault(at_ms + rng.randint(5_800, 6_500), "consent", ("live_replicas",), 2_500),
    ]
    if rng.random() < 0.5:
        crash_ms = at_ms + 7_000
        story.append(Fault(crash_ms, "crash_active_controller", (), rng.randint(300, 2_000)))
    return story


def _waited_for(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A consent has to wait for members that are down, and then prove to be intact."""
    del cluster
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 18_000)
    return [Fault(at_ms, "needless_consent", (rng.randrange(1_000),), 17_000)]


def _slow_follower(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Fetches and answers of a broker are late but in time: it is always some bytes behind."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    slow = rng.randint(1, cluster.brokers)
    delay_ms = rng.randint(300, 700)
    return [
        Fault(at_ms, "delay", (delay_ms, f"broker-{n}>broker-{slow}"), rng.randint(8_000, 14_000))
        for n in range(1, cluster.brokers + 1)
        if n != slow
    ]


def _restored_store(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A broker is led to a backup of the store that is older than what it has seen."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 10_000)
    misled, other = rng.sample(range(1, cluster.brokers + 1), 2)
    return [
        Fault(at_ms, "store_restored", (f"broker-{misled}",), rng.randint(8_000, 12_000)),
        Fault(at_ms + 1_000, "crash_broker", (f"broker-{other}",), rng.randint(50, 1_000)),
    ]


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
    """Cuts a broker's watches of the store, and what it receives from the controllers."""
    return [
        Fault(at_ms, "watch_loss", (broker,), duration_ms),
        *(
            Fault(at_ms, "cut_one_way", (f"controller-{n}", broker), duration_ms)
            for n in range(1, cluster.controllers + 1)
        ),
    ]


def _older_tail(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Of two live replicas, the one with the shorter log has the newer epoch."""
    del cluster
    first_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 28_000)
    return [
        fault
        for at_ms in (first_ms, first_ms + 14_500)
        for fault in (
            Fault(at_ms, "older_tail", (rng.randrange(1_000),), 13_000),
            Fault(at_ms + 9_500, "consent", ("live_replicas",), 2_000),
        )
    ]


def _lost_join(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Followers register again while the proposals that let them join are lost."""
    del cluster
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 30_000)
    return [
        Fault(at_ms + n * 15_500, "lost_join", (rng.randrange(1_000),), 15_000) for n in range(2)
    ]


def _name_handed_over_unseen(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A producer name gets another holder while leaders do not learn of it from the store.

    The former holder writes on, perhaps before the new one: the logs have to fence it.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 18_000)
    away = rng.randint(1, cluster.brokers)
    story = [
        Fault(at_ms, "watch_loss", (f"broker-{n}",), 16_000)
        for n in range(1, cluster.brokers + 1)
        if n != away
    ]
    if rng.random() < 0.7:
        story.append(Fault(at_ms, "silent_successor", (), 16_000))
    return story


STORIES: tuple[Callable[[random.Random, Cluster], list[Fault]], ...] = (
    _stale_joiner,
    _slow_hand_over,
    _bounced_leader,
    _late_deletion,
    _created_again,
    _late_stops,
    _removed_and_added_again,
    _late_questions,
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
    _waited_for,
    _slow_follower,
    _restored_store,
    _older_tail,
    _lost_join,
    _name_handed_over_unseen,
    *DISK_STORIES,
    *DIRECTORY_STORIES,
)


def story_name(story: Callable[[random.Random, Cluster], list[Fault]]) -> str:
    return story.__name__.lstrip("_")


STORY_NAMES = tuple(map(story_name, STORIES))
