"""A violation as a story for a person: one line for each step, with what it changed."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.model import NO_EPOCH, NO_LEADER

from . import controller_guards, invariants
from .broker_actions import Label
from .explore import Violation
from .values import BROKERS, Entries, MemberKey, Replica, Value, epoch_of, record_name
from .world import Expanded

_SENTENCES = {
    "is to be moved": "an operation is to move the partition to brokers {0}",
    "is not to be moved any more": "the operation that moves the partition is cancelled",
    "fetches": "broker {0} fetches from broker {1}",
    "sends a fetch": "broker {0} sends a fetch to broker {1}, which takes its time",
    "a late fetch arrives": "the late fetch of broker {0} arrives at broker {1}",
    "a late fetch arrives and is answered": (
        "the late fetch of broker {0} arrives at broker {1}, whose answer takes its time"
    ),
    "a late answer arrives": "the late answer of broker {1} arrives at broker {0}",
    "appends": "broker {0} appends a record",
    "syncs": "broker {0} syncs its log up to offset {1}",
    "reads the key": "broker {0} reads the key by itself",
    "proposes": "broker {0} proposes another ISR",
    "finds lagging": "broker {0} finds that broker {1} lags, and proposes an ISR without it",
    "writes its ISR change": "broker {0} writes its ISR change",
    "sends its ISR change": "broker {0} sends its ISR change to the store, and hears nothing",
    "a late ISR change is taken": "the store takes the late ISR change of broker {0}",
    "is denied its ISR change": "broker {0} is denied its ISR change: {1}",
    "crashes": "broker {0} crashes",
    "starts": "broker {0} starts again",
    "reboots": "the machine of broker {0} reboots, and {1} record(s) of its log are left",
    "has an empty directory": "an empty data directory takes the id of broker {0}",
    "has its directory copied": "the data directory of broker {0} is copied",
    "runs on its other disk": "broker {0} ends, and starts on its other disk",
    "finds damage": "broker {0} finds its replica damaged",
    "resigns": "broker {0} resigns",
    "is cut and repaired": "broker {0} cuts its damaged log to {1} record(s) and is back",
    "is to be deleted": "the topic is to be deleted",
    "is moved away and back": (
        "the replica of broker {0} is assigned to another broker and back; the StopReplica in "
        "between takes its time"
    ),
    "is moved": (
        "the replica of broker {0} is assigned to another broker and back; the StopReplica in "
        "between arrives at once, and another time late"
    ),
    "registers": "broker {0} registers",
    "registers without an answer": "broker {0} registers, and does not know it yet",
    "learns that it is registered": "broker {0} hears that it is registered",
    "the controller learns who is registered": "the controller learns who is registered",
    "leaders learn who is registered": "the leader learns who is registered",
    "former registration goes": "the registration of broker {0}'s previous incarnation ends",
    "loses its lease": "broker {0} loses its lease, and does not know",
    "is stopping": "broker {0} is stopping",
    "has stopped": "broker {0} has stopped",
    "another controller is elected": "another controller is elected",
}
_FORMS = {
    "ONE": "the state of the key",
    "ALL": "its full state",
    "NOTHING": "its full state, without this partition",
    "STOP": "to stop its replica",
}
_PREFIXED = {
    "the controller writes": "the controller writes its decision",
    "the controller sends": "the controller sends its decision to the store, and it takes its time",
    "a deposed controller sends": (
        "a deposed controller sends its decision to the store, and it takes its time"
    ),
    "late, the store takes": "the store takes a controller's late decision",
    "is lost": "lost on its way:",
}

_ENDINGS = {
    invariants.COMMITTED_IN_ISR: "committed is {committed}, and {lacking}",
    invariants.COMMITTED_AT_LEADER: (
        "committed is {committed}, and broker {leader} leads epoch {epoch} with {log}"
    ),
    invariants.AGREE_BELOW_HW: "committed is {committed}, and a log differs below its "
    "high watermark",
    invariants.ONE_LEADER: "a second time a broker begins to lead that epoch",
    invariants.OBEYS_NEWEST: "its successor was obeyed before",
    controller_guards.NO_DEPOSED_WRITE: "another one is active",
    invariants.HEALS: "from here on nothing fails any more, and still no client can write",
}


def lines(violation: Violation) -> list[str]:
    """Returns numbered lines; the last one names the broken invariant, and how it shows."""
    steps = violation.path
    numbered = []
    before = steps[0][1]
    numbered.append(f"0. Three brokers run. The key: {key_words(before.store.value)}.")
    for number, (label, after) in enumerate(steps[1:], 1):
        changes = "; ".join(changes_of(before, after))
        numbered.append(f"{number}. {sentence(label)}{': ' + changes if changes else ''}.")
        before = after
    numbered.append(f"Violated: {violation.invariant}: {_ending(violation, before)}.")
    return numbered


def _ending(violation: Violation, last: Expanded) -> str:
    value = last.store.value
    leader = last.replicas[value.leader - 1] if value.leader != NO_LEADER else None
    members = {b for b, _ in (*value.isr, *value.eligible)}
    lacking = [
        f"broker {r.broker} has {log_words(r.log)}"
        for r in last.replicas
        if r.broker in members and not invariants.is_prefix(last.ghost.committed, r.log)
    ]
    words = _ENDINGS.get(violation.invariant, "see the last step")
    return words.format(
        committed=log_words(last.ghost.committed),
        lacking=", ".join(lacking),
        leader=value.leader,
        epoch=value.epoch,
        log=log_words(leader.log) if leader else "",
    )


def sentence(label: Label) -> str:
    kind, *rest = label
    if kind in _PREFIXED:
        detail = "" if kind != "is lost" else " " + " ".join(str(word) for word in rest)
        return f"{_PREFIXED[str(kind)]}{detail}"
    if kind == "takes":
        return f"the controller informs broker {rest[0]} {_FORMS[str(rest[1])]}"
    if kind == "a late command arrives":
        return f"late, broker {rest[0]} takes {_FORMS[str(rest[1])]}"
    if kind == "a command is late":
        who = "a deposed controller" if rest[2] else "the controller"
        return f"{who} informs broker {rest[0]} {_FORMS[str(rest[1])]}, which takes its time"
    return _SENTENCES[str(kind)].format(*rest)


def log_words(log: Entries) -> str:
    """Returns records with the epochs in which they were written."""
    return "[" + " ".join(f"{record_name(e)}@{epoch_of(e)}" for e in log) + "]"


def _members(members: tuple[MemberKey, ...]) -> str:
    return (
        "{"
        + ", ".join(str(b) if incarnation else f"{b} not whole" for b, incarnation in members)
        + "}"
    )


def key_words(value: Value) -> str:
    if value.epoch == NO_EPOCH:
        return "absent"
    leader = "no leader" if value.leader == NO_LEADER else f"leader {value.leader}"
    unclean = f", unclean since epoch {value.unclean}" if value.unclean >= 0 else ""
    eligible = f", eligible {_members(value.eligible)}" if value.eligible else ""
    words = f"{leader} in epoch {value.epoch}, ISR {_members(value.isr)}{eligible}{unclean}"
    if value.replicas != BROKERS:
        words += f", replicas {list(value.replicas)}"
    return f"{words}, moving to {list(value.target)}" if value.target else words


def changes_of(before: Expanded, after: Expanded) -> Iterator[str]:
    if before.store.value != after.store.value:
        yield f"the key is {key_words(after.store.value)}"
    for old, new in zip(before.replicas, after.replicas, strict=True):
        yield from _changes_of_replica(old, new)
    if before.ghost.committed != after.ghost.committed:
        yield f"committed is {log_words(after.ghost.committed)}"


def _changes_of_replica(old: Replica, new: Replica) -> Iterator[str]:
    who = f"broker {new.broker}"
    if old.topic != new.topic:
        yield f"{who} has {log_words(new.log) if new.topic else 'no replica'} of topic {new.topic}"
    elif old.log != new.log:
        cut = len(new.log) < len(old.log)
        yield f"{who} {'truncates to' if cut else 'has'} {log_words(new.log)}"
    if old.high_watermark != new.high_watermark and new.up:
        yield f"{who}'s high watermark is {new.high_watermark}"
    was = old.value.epoch if old.leading and old.value else None
    leads = new.value.epoch if new.leading and new.value else None
    if leads != was and leads is not None:
        yield f"{who} leads epoch {leads}"
    elif leads is None and was is not None and new.up:
        yield f"{who} leads no more"
    elif leads is None and new.value and new.up and new.value != old.value:
        follows = new.value.leader not in (NO_LEADER, new.broker)
        if follows:
            yield f"{who} follows broker {new.value.leader} in epoch {new.value.epoch}"
