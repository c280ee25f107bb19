"""One finding for each root: the state of a broker, and all effects of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.inspection.explain import (
    broker_pressures,
    causes,
    cut_offs,
    limited_clients,
    machines,
    next_steps,
    packet_loss,
    service_pressures,
    starts,
)
from tidelog.inspection.explain.causes import Reason, Root, Symptom
from tidelog.inspection.explain.cluster_view import FAULT, UNFINISHED, VERSION, ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, ago, listed, span
from tidelog.inspection.explain.observation import Listening, name_of
from tidelog.inspection.explain.packet_loss import TO_SEE_LOSS
from tidelog.inspection.state_reports import Finding, RejectedStart
from tidelog.model import TopicPartition
from tidelog.phrases import plural

# Lines about single partitions in a finding about many.
MAX_DESCRIBED = 3

_SUMMARY = {
    causes.REPLICA_DEAD: "broker {broker} is gone",
    causes.BROKER_STOPPED: "broker {broker} is gone: it was stopped and is not back",
    causes.BROKER_CANNOT_START: "broker {broker} cannot start",
    causes.BROKER_PAUSED: "broker {broker} is paused: it accepts connections and does not respond",
    causes.BROKER_UNREACHABLE: "broker {broker} cannot be reached from here",
    causes.BROKER_CUT_OFF: "broker {broker} is alive and cut off from the other brokers",
    causes.BROKER_BUSY: "broker {broker} is alive and did not answer in time, so that its "
    "state is missing here",
    causes.BROKER_UNREGISTERED: "broker {broker} is alive and not registered in the metadata store",
    causes.BROKER_STARTING: "broker {broker} is starting",
    causes.BROKER_STOPPING: "broker {broker} is stopping",
    causes.REPLICA_SLOW: "broker {broker} fetches and does not catch up",
    causes.LEADER_SLOW: "followers lag behind broker {broker} and keep up with other leaders",
    causes.REPLICA_CATCHING_UP: "broker {broker} is catching up",
    causes.REPLICA_CUT_OFF: "broker {broker} is alive and cut off from a leader that it follows",
    causes.PACKETS_LOST: "broker {broker} loses packets",
    causes.DISK_FULL: "broker {broker} has no room on its disk",
    causes.DISK_ERROR: "the disk of broker {broker} fails",
    causes.REPLICA_CORRUPT: "broker {broker} has found replicas damaged",
    causes.REPLICA_REJECTS: "broker {broker} rejects batches of its leader",
}
_NEXT_STEP = {
    causes.REPLICA_DEAD: "Start broker {broker}; its log contains the reason for its end. It "
    "catches up and rejoins every ISR by itself.",
    causes.BROKER_CANNOT_START: "Correct what its last start reported, and start broker {broker} "
    "again. It catches up and rejoins every ISR by itself.",
    causes.BROKER_STOPPED: "Start broker {broker} again when its maintenance is done. It "
    "catches up and rejoins every ISR by itself.",
    causes.BROKER_PAUSED: "Check its process: is it stopped (kill -CONT PID lets it continue), "
    "starting on a large log, or starved of CPU, memory or disk? Restart it if it does not "
    f"recover; it rejoins by itself. If it runs, check the network to it: {TO_SEE_LOSS}.",
    causes.BROKER_UNREACHABLE: "Check the network to its advertised address, and that this "
    "address is the right one; if that is in order, check its process, and run explain again in "
    "some seconds.",
    causes.BROKER_CUT_OFF: cut_offs.NEXT_STEP,
    causes.PACKETS_LOST: packet_loss.NEXT_STEP,
    causes.BROKER_BUSY: "Run explain again with a longer --timeout. If this remains, check the "
    f"network to broker {{broker}} first, as it reports no shortage: {TO_SEE_LOSS}. Then check "
    "what CPU, memory and disk it has left.",
    causes.BROKER_UNREGISTERED: "Check that it reaches the metadata store (tidelog explain "
    "--broker {broker}); it registers by itself.",
    causes.BROKER_STARTING: "Wait until it has opened its logs and has its replicas from the "
    "controller; run explain again to see its progress.",
    causes.BROKER_STOPPING: "Nothing, if it is meant to stop; start it again when it has.",
    causes.REPLICA_SLOW: "Check CPU, disk and network of broker {broker}, and what else "
    "its leaders have to send; it rejoins when it has caught up.",
    causes.LEADER_SLOW: packet_loss.LEADER_SLOW_NEXT_STEP,
    causes.REPLICA_CATCHING_UP: "Nothing; it rejoins when it has caught up.",
    causes.REPLICA_CUT_OFF: "Check the network from broker {broker} to that leader's advertised "
    "address, and what lies between.",
    causes.DISK_FULL: "Make room on its data_dir, shorten retention_ms or retention_bytes of large "
    "topics, or delete topics: that frees space on a full disk, too. It continues by itself.",
    causes.DISK_ERROR: "Check the kernel's log of its machine. Stop broker {broker}, repair the "
    "disk and mount it writable, and start the broker: its replicas are copied from their leaders "
    "by themselves. On a new, empty disk start it with --replace-directory{directory}.",
    **broker_pressures.NEXT_STEP,
    causes.REPLICA_REJECTS: "Check the disk of its leader: tidelog brokers scrub {leaders}. If "
    "it is sound, check the network between the two; broker {broker} fetches again by itself, and "
    "stays out of the ISR until then. If nothing helps, move the replica away and back, so that it "
    "is copied from scratch.",
    causes.REPLICA_CORRUPT: "It is truncated to its sound part and copied again from its leader by "
    "itself; check the disk of that machine if this happens again.",
}
# For a broker that is gone and whose address does not even refuse a connection.
_TO_REACH = (
    "Its address does not react at all: check whether its machine is down or cut off from the "
    "network. If broker {broker} runs, it registers and rejoins by itself once it is reached; "
    "otherwise start it."
)
_SEVERITY_OF_MINOR = {
    causes.BROKER_STARTING: causes.INFO,
    causes.BROKER_STOPPING: causes.INFO,
    causes.REPLICA_CATCHING_UP: causes.INFO,
}
# Suffix of effects on partitions in which replicas on other brokers are affected.
_OTHER_EFFECTS = "_of_others"
# Suffix of effects on partitions that the broker of the root leads.
_LEADING = "_leading"
# Suffix of effects on replicas that accept records again.
_RECOVERING = "_recovering"
# The effects of a root by symptom, in the order in which a finding names them.
_FOLLOWS = {
    causes.UNCLEAN_ELECTION: "{partitions} in which committed records may be lost",
    causes.NO_LEADER: "{partitions} without a leader",
    causes.UNDER_MIN_ISR: "{partitions} below min ISR",
    causes.HW_STALLED: "the high watermark does not advance in {partitions}",
    causes.TAKES_NO_RECORDS + _LEADING: "writes fail in {partitions} that it leads",
    causes.LEADER_LATE: "requests for {partitions} that it leads are late",
    causes.LEADERSHIP_LEFT: "leadership of {partitions} transferred to other brokers",
    causes.TAKES_NO_RECORDS + _RECOVERING: "{replicas} that accepted no records until then",
    causes.TAKES_NO_RECORDS: "{replicas} accepting no records",
    causes.REPLICA_OUT_OF_ISR: "out of the ISR of {partitions}",
    causes.REPLICA_OUT_OF_ISR + _OTHER_EFFECTS: "{partitions} with replicas out of the ISR",
    causes.MOVE_WAITS: "{moves} of partitions waiting for it",
    causes.CANCELLATION_WAITS: "{cancelled_moves} waiting for it to be rolled back",
    causes.IN_ISR_AND_GONE: "still in the ISR of {partitions}",
    causes.IN_ISR_AND_GONE + _OTHER_EFFECTS: "{partitions} with a broker in the ISR that is gone",
}
_OF_ONE_REPLICA = frozenset({causes.REPLICA_OUT_OF_ISR, causes.IN_ISR_AND_GONE})

Following = dict[Root, list[tuple[Symptom, Reason]]]


def following(symptoms: Sequence[Symptom]) -> Following:
    """Returns the effects of each root, in the order of the symptoms."""
    found: Following = {}
    for symptom in symptoms:
        for reason in symptom.reasons:
            found.setdefault(reason.root, []).append((symptom, reason))
    return found


def is_reported_as_root(root: Root) -> bool:
    """Whether this module reports the root; other roots have findings elsewhere."""
    return root.cause in _SUMMARY or broker_pressures.is_pressure(root)


def finding(view: ClusterView, root: Root, follows: Sequence[tuple[Symptom, Reason]]) -> Finding:
    by_effect = _by_effect(root, follows)
    names = list(dict.fromkeys(symptom.name for symptom, _ in follows))
    summary = _summary(view, root)
    evidence = list(_about_broker(view, root))
    evidence += effects(root, follows)
    because = _because(view, root)
    return Finding(
        root.cause,
        _severity(view, root, follows),
        f"{summary}: {', '.join(by_effect)}" if by_effect else summary,
        tuple(evidence),
        _next_step(view, root, because, names),
        *_subject(names),
        root.broker,
        tuple(map(str, names[:MAX_NAMED])),
        len(names),
        because,
    )


def effects(root: Root, follows: Sequence[tuple[Symptom, Reason]]) -> list[str]:
    """Returns evidence: lines about single partitions, and one line for each kind of effect with
    its partitions. Each kind has its line, however many partitions another kind has."""
    lines: dict[str, None] = {}
    first_of_effect: dict[str, str] = {}
    for symptom, reason in follows:
        lines.update(dict.fromkeys(reason.evidence))
        if reason.evidence:
            first_of_effect.setdefault(symptom.cause + _variant(root, symptom), reason.evidence[0])
    described = dict.fromkeys([*first_of_effect.values(), *lines])
    most = max(MAX_DESCRIBED, len(set(first_of_effect.values())))
    kept = set(list(described)[:most])
    affected = [f"{effect}: {listed(names)}" for effect, names in _by_effect(root, follows).items()]
    return [line for line in lines if line in kept] + affected


def _by_effect(
    root: Root, follows: Sequence[tuple[Symptom, Reason]]
) -> dict[str, list[TopicPartition]]:
    """Returns partitions by the sentence about their effect, in the order of `_FOLLOWS`."""
    found: dict[str, list[TopicPartition]] = {}
    for symptom, _ in follows:
        names = found.setdefault(symptom.cause + _variant(root, symptom), [])
        if symptom.name not in names[-1:]:
            names.append(symptom.name)
    return {
        _effect_text(effect, len(found[cause])): found[cause]
        for cause, effect in _FOLLOWS.items()
        if cause in found
    }


def _effect_text(effect: str, count: int) -> str:
    return effect.format(
        partitions=plural(count, "partition"),
        replicas=plural(count, "replica"),
        moves=plural(count, "move"),
        cancelled_moves=plural(count, "cancelled move"),
    )


def _variant(root: Root, symptom: Symptom) -> str:
    """Returns the suffix that selects the sentence about a symptom."""
    if symptom.cause == causes.TAKES_NO_RECORDS:
        if symptom.severity == causes.INFO:
            return _RECOVERING
        return _LEADING if symptom.severity == causes.CRITICAL else ""
    of_others = symptom.cause in _OF_ONE_REPLICA and symptom.broker != root.broker
    return _OTHER_EFFECTS if of_others else ""


def _is_unresolved(view: ClusterView, root: Root) -> bool:
    return root.cause == causes.BROKER_UNREACHABLE and view.has_unresolved_name(root.broker)


def _own_report(view: ClusterView, root: Root) -> RejectedStart | None:
    """Returns what the process of a missing broker has recorded about its end."""
    if root.cause == causes.REPLICA_DEAD:
        return view.crash(root.broker)
    return view.failed_start(root.broker) if root.cause == causes.BROKER_CANNOT_START else None


_OWN_SUMMARY: Mapping[str, Callable[[ClusterView, Root], str]] = {
    causes.BROKER_CUT_OFF: cut_offs.summary,
    causes.PACKETS_LOST: packet_loss.summary,
    **dict.fromkeys(broker_pressures.NEXT_STEP, broker_pressures.summary),
}


def _summary(view: ClusterView, root: Root) -> str:
    if root.cause in _OWN_SUMMARY:
        return _OWN_SUMMARY[root.cause](view, root)
    details = _SUMMARY[root.cause].format(broker=root.broker)
    own = _own_report(view, root)
    if own is not None:
        return _by_own_report(view, root, own)
    if broker_pressures.at_death(view, root) is not None:
        return f"{details}{broker_pressures.memory_at_death(view, root)}"
    if root.cause == causes.DISK_FULL and machines.lacks_inodes(view, root.broker):
        details = f"broker {root.broker} has no inodes left on its disk"
    if root.cause == causes.DISK_ERROR:
        details = machines.hang_summary(view, root.broker) or details
        if machines.hang_over_in_ms(view, root.broker):
            return details
    if root.cause in (causes.DISK_FULL, causes.DISK_ERROR):
        return details + machines.failing_since(view, root)
    if root.cause == causes.BROKER_STARTING:
        return f"{details}: it {starts.phase_of(view, root.broker)}"
    backlog = view.pending_full_state(root.broker)
    if root.cause == causes.BROKER_BUSY and backlog and not _answers_probe(view, root.broker):
        why = starts.receiving_full_state(backlog)
        return f"broker {root.broker} gives no answer, which may be because {why}"
    return _unreachable(view, root, details) if root.cause == causes.BROKER_UNREACHABLE else details


def _unreachable(view: ClusterView, root: Root, details: str) -> str:
    silent = view.silent_broker(root.broker)
    if _is_unresolved(view, root):
        assert silent is not None
        host = silent.address.rpartition(":")[0]
        return f"broker {root.broker} advertises a name that does not resolve here: {host}"
    if view.answers_elsewhere(root.broker):
        assert silent is not None
        return f"{details} at {silent.address}, which it advertises, though it answers elsewhere"
    errs = silent is not None and silent.listening is Listening.ERRS
    if errs or view.is_alive_by_peers(root.broker):
        return f"{details}, and is alive"
    if view.links.is_connected(root.broker):
        return f"{details}; the active controller has a connection to it"
    return f"{details}, and no service that answers reports whether it is alive"


def _by_own_report(view: ClusterView, root: Root, own: RejectedStart) -> str:
    if root.cause == causes.REPLICA_DEAD:
        memory = broker_pressures.memory_at_death(view, root)
        return f"broker {root.broker} is gone: it has crashed ({own.reason}){memory}"
    before = span(max(0, view.now_ms() - own.at_ms))
    if own.cause == UNFINISHED:
        return f"broker {root.broker} is gone: its last start began {before} ago; {own.reason}"
    details = f"({own.reason}), as it reported {before} ago"
    if view.is_new(root.broker):
        return (
            f"broker {root.broker} cannot start, and has never been part of the cluster {details}"
        )
    return f"broker {root.broker} is gone: it cannot start {details}"


def _answers_probe(view: ClusterView, broker_id: int) -> bool:
    silent = view.silent_broker(broker_id)
    return silent is not None and silent.listening is Listening.BUSY


def _because(view: ClusterView, root: Root) -> tuple[str, ...]:
    """Returns roots that this root depends on.

    A broker without the store can neither register nor resign a damaged replica. A starting broker
    gets its replicas from a controller, which needs the store itself.
    """
    is_start = root.cause == causes.BROKER_STARTING
    waits = is_start or root.cause in (causes.BROKER_UNREGISTERED, causes.REPLICA_CORRUPT)
    found: list[Root] = []
    # A starting broker may still wait for its first answer.
    store_lost = view.cannot_write_store(root.broker) or (is_start and view.store_lost_by_all())
    if waits and store_lost:
        found.append(view.store_root(root.broker))
    if is_start and view.has_no_controller:
        found.append(Root(causes.NO_CONTROLLER))
    waits_for_states = is_start and starts.waits_for_states(view, root.broker)
    short = service_pressures.root_of_active(view) if waits_for_states else ""
    if is_start and cut_offs.is_cut_off_from_controller(view, root.broker):
        found.append(cut_offs.controller_root_of(root.broker))
    if waits and cut_offs.is_cut_off(view, root.broker):
        found.append(cut_offs.root_of(root.broker))
    return (*map(str, found), short) if short else tuple(map(str, found))


def _next_step(
    view: ClusterView, root: Root, because: Sequence[str], names: Sequence[TopicPartition]
) -> str:
    """`names`: the affected partitions."""
    lacking = next_steps.of_restarted_broker(
        root, store_unreachable=view.store_lost_by_all(), has_controller=not view.has_no_controller
    )
    if lacking is not None:
        return lacking
    if broker_pressures.at_death(view, root) is not None:
        return (
            f"Raise the memory limit of broker {root.broker} (ulimit -v, or its container's), "
            "and start it. It catches up and rejoins every ISR by itself."
        )
    if root.cause == causes.DISK_FULL and machines.lacks_inodes(view, root.broker):
        return machines.INODES_NEXT_STEP
    failed = _own_report(view, root)
    if failed is not None and failed.cause == VERSION:
        return (
            f"Start broker {root.broker} with the release that its last start names. Every broker "
            "and controller has to support the cluster's feature level: tidelog cluster describe."
        )
    if root.cause == causes.BROKER_CANNOT_START and view.is_new(root.broker):
        return (
            f"Correct what its last start reported, its broker_id if {root.broker} is not meant, "
            "and start it again."
        )
    if _is_unresolved(view, root):
        return (
            f"Correct advertised_address of broker {root.broker}, or the DNS entry (/etc/hosts) of "
            "the name, on every machine that connects to it; then restart the broker."
        )
    if root.cause == causes.BROKER_STARTING and because:
        return (
            f"See {' and '.join(because)}: broker {root.broker} "
            f"{starts.waits_for(view, root.broker)}, and continues by itself."
        )
    registered = view.registry.brokers.get(root.broker)
    directory = f" {registered.directory_id}" if registered and registered.directory_id else ""
    leaders = sorted({view.keys[name].leader for name in names if name in view.keys})
    own = _own_report(view, root)
    is_unfinished = own is not None and own.cause == UNFINISHED
    silent = view.silent_broker(root.broker)
    is_unheard = silent is not None and silent.listening is Listening.SILENT
    if root.cause == causes.REPLICA_DEAD and own is None and is_unheard:
        return _TO_REACH.format(broker=root.broker)
    hangs = machines.hang_next_step(view, root.broker) if root.cause == causes.DISK_ERROR else ""
    step = hangs or _NEXT_STEP[causes.REPLICA_DEAD if is_unfinished else root.cause]
    return step.format(
        broker=root.broker,
        directory=directory,
        leaders=" ".join(map(str, leaders)) or "BROKER",
    )


def _subject(names: Sequence[TopicPartition]) -> tuple[str, int]:
    """Returns topic and partition, if there is only one."""
    topics = {name.topic for name in names}
    if len(names) == 1:
        return names[0].topic, names[0].partition
    return (names[0].topic, -1) if len(topics) == 1 else ("", -1)


def _severity(view: ClusterView, root: Root, follows: Sequence[tuple[Symptom, Reason]]) -> str:
    """Returns the worst severity of the effects; without effects, that of the root itself. If the
    effects are unknown, it is a warning."""
    if not follows and view.metadata_unread:
        return causes.WARNING
    if not follows:
        return _SEVERITY_OF_MINOR.get(root.cause, causes.WARNING)
    return min((symptom.severity for symptom, _ in follows), key=causes.SEVERITIES.index)


def _about_broker(view: ClusterView, root: Root) -> list[str]:
    broker_id = root.broker
    evidence: list[str] = []
    if broker_pressures.is_pressure(root):
        evidence.append(broker_pressures.evidence(view, root))
    if root.cause == causes.MANY_CONNECTIONS:
        evidence += limited_clients.of_many_connections(view, broker_id)
    if broker_pressures.at_death(view, root) is not None:
        memory = Root(causes.MEMORY_SHORT, broker_id)
        evidence.append(broker_pressures.evidence(view, memory))
    departure = view.departures.get(broker_id)
    if departure is not None and view.registry.reporter is not None:
        evidence.append(
            f"{name_of(view.registry.reporter)} reports: its incarnation {departure.broker_epoch} "
            f"ended {ago(departure.at_ms, view.now_ms())}: {departure.cause}"
        )
    own = _own_report(view, root)
    if own is not None:
        what = _REPORTED_ENDS.get(own.cause, "its last start failed")
        where = f" on {own.host}" if own.host else ""
        evidence.append(
            f"it reported that {what}{where} {ago(own.at_ms, view.now_ms())}, with data_dir "
            f"{own.data_dir}: {own.reason}"
        )
    silent = view.silent_broker(broker_id)
    if silent is not None:
        evidence.append(
            f"{silent.address} {silent.listening.value}; when queried, it {silent.problem}"
        )
    if root.cause in _LIVENESS_UNKNOWN:
        evidence.append(_registration(view, broker_id))
        fetched = view.last_fetch_ms(broker_id)
        if fetched is not None and root.cause not in _ENDED:
            evidence.append(f"a leader received a fetch from it {span(fetched)} ago")
        answered = view.last_answer_ms(broker_id)
        if answered is not None and root.cause not in _ENDED:
            evidence.append(f"it answered a follower {span(answered)} ago")
    if root.cause in _MAY_LOSE_PACKETS:
        evidence += packet_loss.evidence(view, broker_id)
    if root.cause == causes.DISK_FULL:
        evidence += machines.disk_lines(view, broker_id)
    return evidence + _links(view, root)


def _links(view: ClusterView, root: Root) -> list[str]:
    if root.cause == causes.BROKER_CUT_OFF:
        return list(cut_offs.evidence(view, root.broker))
    if root.cause == causes.BROKER_UNREACHABLE:
        return list(view.links.evidence(root.broker))
    return []


_REPORTED_ENDS = {FAULT: "its process ended with a fault", UNFINISHED: "its last start began"}
_MAY_LOSE_PACKETS = frozenset(
    {
        causes.BROKER_PAUSED,
        causes.BROKER_UNREACHABLE,
        causes.BROKER_BUSY,
        causes.REPLICA_CUT_OFF,
        causes.REPLICA_SLOW,
        causes.LEADER_SLOW,
        causes.PACKETS_LOST,
    }
)
_ENDED = frozenset({causes.REPLICA_DEAD, causes.BROKER_STOPPED, causes.BROKER_CANNOT_START})
_LIVENESS_UNKNOWN = _ENDED | frozenset(
    {
        causes.BROKER_PAUSED,
        causes.BROKER_UNREACHABLE,
        causes.BROKER_BUSY,
        causes.BROKER_UNREGISTERED,
    }
)


def _registration(view: ClusterView, broker_id: int) -> str:
    registry = view.registry
    if registry.reporter is None:
        return "no service reports whether it is registered"
    reporter = name_of(registry.reporter)
    old = "" if registry.store_answers else ", which does not reach the metadata store now"
    registered = registry.brokers.get(broker_id)
    if registered is None:
        return f"it has no registration, according to {reporter}{old}"
    return (
        f"it is registered in incarnation {registered.broker_epoch} at {registered.address} "
        f"({registered.state}), according to {reporter}{old}"
    )
