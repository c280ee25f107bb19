"""The measured effect that each kind of fault must have. Pure.

Killing a dead process has no effect, nor has cutting an idle link, or filling a disk without
writes. Each kind measures something that only its effect can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from faults.catalogue import KINDS
from faults.plan import Step
from tidelog.state_changes.event import Kind

# For a clock that is an hour ahead.
SKEW_SEEN_S = 1_800
# For the 100 ms that a relay adds in each direction.
DELAY_SEEN_MS = 90
# TCP repeats lost packets; a leader's connections become slow, and some time out.
DROP_PERCENT = 20
# Enough packets for their share to be significant.
DROPPED_SEEN = 20

Measures = Mapping[str, float]


class Rule(NamedTuple):
    """`measure` is at least `least`. `after`: measured once the service that the fault ended is
    back."""

    measure: str
    least: float
    shows: str
    after: bool = False


_ENDED = Rule("processes_ended", 1, "processes that ended and came back as others", after=True)
_STOPPED = Rule("seen_stopped", 1, "the kernel calls the process stopped")
_LOST = Rule("packets_lost", 1, "packets that the rules took away, as they count them")
_CLEAN = Rule("clean_ends", 1, "processes that ended with status 0 on request", after=True)
_OTHER_ACTIVE = Rule("other_active", 1, "another controller became the active one")
_REJECTED = Rule(
    "starts_rejected", 1, "the second process ended, for the id belongs to another directory"
)
_MEMBERS = Rule("members_ended", 1, "etcd members that ended")

RULES: dict[str, tuple[Rule, ...]] = {
    "kill_leader": (_ENDED,),
    "stop_leader": (_ENDED, _CLEAN),
    "pause_leader": (_STOPPED,),
    "pause_follower": (_STOPPED,),
    "kill_controller": (_ENDED, _OTHER_ACTIVE),
    "stop_controller": (_ENDED, _CLEAN, _OTHER_ACTIVE),
    "pause_controller": (_STOPPED,),
    "restart_all_brokers": (
        Rule("processes_ended", 3, "all brokers ended and came back", after=True),
    ),
    "start_second_process": (_REJECTED,),
    "start_copied_process": (
        Rule("waits_reported", 1, "the second process waits for the registration of the first"),
    ),
    "start_second_while_paused": (_STOPPED, _REJECTED),
    "take_over_by_copy": (
        _STOPPED,
        Rule("registrations", 1, "the second process took the id"),
        Rule("not_intact_reported", 1, "and reported that its directory is not intact"),
    ),
    "cut_off_leader": (_LOST,),
    "cut_follower": (_LOST,),
    "cut_leader_from_followers": (_LOST,),
    "cut_one_way": (_LOST,),
    "cut_leader_from_etcd": (_LOST,),
    "drop_packets": (
        Rule("packets_lost", DROPPED_SEEN, "packets that the rules took away, as they count them"),
        Rule("percent_lost", DROP_PERCENT / 2, "of all that came to them"),
    ),
    "delay_clients": (
        Rule("bytes_delayed", 1, "bytes that went through the relays late"),
        Rule("least_delay_ms", DELAY_SEEN_MS, "the least that any of them was late"),
    ),
    "cut_off_clients": (Rule("connections_cut", 1, "connections broken or refused"),),
    "hang_answers": (Rule("bytes_held", 1, "bytes that a relay held back"),),
    "delay_services": (
        Rule("bytes_delayed", 1, "bytes that went through the relay late"),
        Rule("least_delay_ms", DELAY_SEEN_MS, "the least that any of them was late"),
    ),
    "fill_disk": (
        Rule("refusals_logged", 1, "the broker logged that its disk is full"),
        Rule("leads_none", 1, "it leads no partition of the topic any more, while it is full"),
    ),
    "flip_bit": (
        Rule("processes_ended", 1, "the broker was down meanwhile", after=True),
        Rule("damage_logged", 1, "the broker found the damage by its checksum", after=True),
    ),
    "flip_byte_of_leader": (
        Rule("damage_logged", 1, "the scrub of the running leader found the damage"),
        Rule("repairs_logged", 1, "its replica was repaired by the new leader", after=True),
    ),
    "kill_etcd_member": (_MEMBERS,),
    "kill_etcd_leader": (_MEMBERS, Rule("other_etcd_leader", 1, "another member leads")),
    "kill_all_etcd": (
        Rule("all_ended", 1, "no member of etcd went on"),
        Rule("store_losses_logged", 1, "services logged that the store is lost"),
    ),
    "skew_clock": (Rule("skew_s", SKEW_SEEN_S, "how far the leader's stamps are off"),),
}
assert RULES.keys() == KINDS.keys(), "every kind has its effect"


class StoryRule(NamedTuple):
    """After each fault of the kind `after`, brokers log an event of the kind `logged`, before the
    next fault of that kind."""

    logged: Kind
    after: str
    shows: str


# Stories whose faults together must have an effect beyond their own.
STORY_RULES: dict[str, StoryRule] = {
    "truncation": StoryRule(
        Kind.TRUNCATION,
        "cut_leader_from_followers",
        "a replica cut off what its new leader has not",
    ),
}


def lacking_of_story(step: Step, logged: int) -> list[str]:
    """`logged`: after how many faults of the story brokers logged its effect."""
    rule = STORY_RULES.get(step.name)
    if rule is None:
        return []
    least = sum(fault.times for fault in step.faults if fault.kind == rule.after)
    if logged >= least:
        return []
    return [
        f"{rule.logged.value} was logged after {logged} of {least} times of {rule.after} "
        f"({rule.shows})"
    ]


def logged_after(begins_ms: Sequence[int], logged_ms: Sequence[int]) -> int:
    """How many of these beginnings have a log line of the effect before the next beginning."""
    ends = [*begins_ms[1:], inf]
    return sum(
        any(begin <= at < end for at in logged_ms)
        for begin, end in zip(begins_ms, ends, strict=False)
    )


def lacking(kind: str, measures: Measures) -> list[str]:
    """The missing effect of a fault; empty: it had its effect."""
    return [
        f"{rule.measure} is {measures.get(rule.measure, 0):g}, at least {rule.least:g} shows an "
        f"effect ({rule.shows})"
        for rule in RULES[kind]
        if measures.get(rule.measure, 0) < rule.least
    ]


def is_yet_to_show(kind: str, measures: Measures) -> bool:
    """Whether the effect, or a part of it, must show before healing, and has not shown yet."""
    return any(measures.get(rule.measure, 0) < rule.least for rule in RULES[kind] if not rule.after)
