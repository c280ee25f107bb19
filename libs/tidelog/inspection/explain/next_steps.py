"""Next steps that depend on other problems: a step that needs the metadata store or a controller
does not help while these are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.formatting import MAX_NAMED, clock_time, listed
from tidelog.model import TopicPartition
from tidelog.phrases import PREFERRED_AT_ONCE, PREFERRED_RETURN

MAX_COMMANDS = 3
# The trace begins this long before an election, to show what led to it.
TRACED_BEFORE_MS = 60_000


def of_leader_gone(
    leader: int, *, is_paused: bool, store_unreachable: bool, has_controller: bool
) -> str:
    """The next step for a leader that serves no client and that the partition's key still names.

    A broker leads only in an epoch that was given to its current incarnation. A new incarnation
    therefore needs store and controller as much as another leader does.
    """
    process = f"broker {leader}'s process"
    resume = f"Or let {process} continue (kill -CONT PID), if it is stopped."
    if store_unreachable:
        elect = (
            "Restore access to the metadata store: without it no leader is elected, and broker "
            f"{leader} cannot lead after a restart"
        )
        return f"{elect}. {resume}" if is_paused else f"{elect}."
    if not has_controller:
        elect = "Start a controller: it elects another leader"
        if is_paused:
            return f"{elect}. {resume}"
        return f"{elect}; broker {leader} after a restart waits for a controller, too."
    if is_paused:
        return f"Run explain again in some seconds; if this remains, stop {process}."
    return "Run explain again in some seconds; if this remains, check the controller's log."


def of_paused(broker_id: int) -> str:
    """Precedes the next step if no other broker can lead."""
    return (
        f"Let broker {broker_id}'s process continue (kill -CONT PID), if it is stopped; otherwise "
        "stop it first."
    )


def of_not_preferred(names: Sequence[TopicPartition], *, has_controller: bool) -> str:
    """Uses one command for all partitions. It names the partitions; if these are too many, the
    topics; if these are too many, nothing, which means every partition of the cluster."""
    if not has_controller:
        return f"Nothing is lost. Start a controller. {PREFERRED_RETURN}"
    arguments: Sequence[object] = names
    if len(arguments) > MAX_NAMED:
        arguments = sorted({name.topic for name in names})
    if len(arguments) > MAX_NAMED:
        arguments = ()
    command = " ".join((PREFERRED_AT_ONCE, *map(str, arguments)))
    return f"Nothing is lost. {PREFERRED_RETURN} At once: {command}"


def of_maintenance(broker_id: int, names: Sequence[TopicPartition]) -> str:  # noqa: ARG001
    """Returns the same step for all partitions."""
    return (
        "Nothing is lost: a broker in maintenance leads only what no other replica can. To end it: "
        f"tidelog brokers maintenance {broker_id} --off"
    )


def of_unclean_election(names: Sequence[TopicPartition], elected_at_ms: int) -> str:
    """`elected_at_ms`: the time of the first election; 0 if unknown."""
    before = f"before {clock_time(elected_at_ms)}" if elected_at_ms else "before the election"
    since = f" --since {clock_time(elected_at_ms - TRACED_BEFORE_MS)}" if elected_at_ms else ""
    shown = names[:MAX_NAMED] if len(names) <= MAX_NAMED else sorted({n.topic for n in names})
    return (
        f"To see what led to it: tidelog trace {' '.join(map(str, shown[:MAX_NAMED]))}{since}. "
        f"Compare what producers had acknowledged {before} with what the topic has; consumers that "
        "had read further get a LogTruncatedError. The finding ends with the next clean election: "
        f"tidelog leaders move {names[0]}=BROKER, with a replica in sync."
    )


def for_each(one: Callable[[TopicPartition], str], names: Sequence[TopicPartition]) -> str:
    """Returns the step for the first partition, and the names of those that need the same."""
    rest = f" Do the same for {listed(names[1:])}." if len(names) > 1 else ""
    return one(names[0]) + rest


def of_damaged_records(broker_id: int, names: Sequence[TopicPartition]) -> str:
    topics = dict.fromkeys(name.topic for name in names)
    commands = listed((f"tidelog consume {t} --on-damage skip" for t in topics), MAX_COMMANDS)
    return (
        "Check that disk. Restore the records from a backup or an archive, or let consumers skip "
        f'them ({commands}, Consumer(on_damage="skip")). The bytes that were found are in '
        f"evidence/ in the data_dir of broker {broker_id}."
    )


def recover(names: Sequence[TopicPartition], *options: str) -> str:
    """Returns one command for each topic; only MAX_COMMANDS are named."""
    by_topic: dict[str, list[int]] = {}
    for name in names:
        by_topic.setdefault(name.topic, []).append(name.partition)
    commands = []
    for topic in sorted(by_topic):
        chosen = [f"--partition {partition}" for partition in by_topic[topic]]
        # Without partitions the command takes all partitions of the topic that have no leader.
        words = chosen if len(chosen) <= MAX_NAMED else []
        commands.append(" ".join(("tidelog topics recover", topic, *words, *options)))
    return listed(commands, MAX_COMMANDS)


_TO_START = {
    causes.BROKER_CANNOT_START: "correct what its last start reported, and start broker {broker}",
    causes.REPLICA_DEAD: "start broker {broker}; its log contains the reason for its end",
    causes.BROKER_STOPPED: "start broker {broker} again when its maintenance is done",
}


def of_restarted_broker(root: Root, *, store_unreachable: bool, has_controller: bool) -> str | None:
    """Returns the next step for a broker that does nothing. None if a new incarnation would have
    what it needs."""
    if root.cause == causes.BROKER_PAUSED and store_unreachable:
        return (
            "Check its process: is it stopped (kill -CONT PID lets it continue), or starved of "
            "CPU, memory or disk? Do not restart it before the metadata store is available again: "
            f"without it broker {root.broker} after a restart can neither register nor join an ISR."
        )
    if root.cause not in _TO_START:
        return None
    start = _TO_START[root.cause].format(broker=root.broker)
    if store_unreachable:
        return (
            f"Restore the metadata store first: without it broker {root.broker} after a restart "
            f"can neither register nor join an ISR. Then {start}."
        )
    if not has_controller:
        return (
            f"Start a controller first: broker {root.broker} after a restart has its replicas from "
            f"one. Then {start}."
        )
    return None
