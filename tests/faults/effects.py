"""What counts as the effect of a fault. Pure.

A kill of a dead process has none, nor a cut of a link over which nothing was sent, nor a full
disk to which nobody wrote. Each kind measures something that only its effect can move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from faults.catalogue import KINDS
from tidelog.state_changes.event import Kind

# Of an hour.
SKEW_SEEN_S = 1_800
# Of the 100 ms that a relay adds to each way.
DELAY_SEEN_MS = 90

Measures = Mapping[str, float]


class Rule(NamedTuple):
    """`measure` is at least `least`."""

    measure: str
    least: float
    shows: str


_ENDED = Rule("lives_ended", 1, "processes that ended and came back as others")
_STOPPED = Rule("seen_stopped", 1, "the kernel calls the process stopped")
_LOST = Rule("packets_lost", 1, "packets that the rules took away, as they count them")
_OTHER_ACTIVE = Rule("other_active", 1, "another controller became the active one")
_MEMBERS = Rule("members_ended", 1, "etcd members that ended")

RULES: dict[str, tuple[Rule, ...]] = {
    "kill_leader": (_ENDED,),
    "stop_leader": (_ENDED,),
    "pause_leader": (_STOPPED,),
    "pause_follower": (_STOPPED,),
    "kill_controller": (_ENDED, _OTHER_ACTIVE),
    "stop_controller": (_ENDED, _OTHER_ACTIVE),
    "pause_controller": (_STOPPED,),
    "restart_all_brokers": (Rule("lives_ended", 3, "all brokers ended and came back"),),
    "cut_off_leader": (_LOST,),
    "cut_follower": (_LOST,),
    "cut_leader_from_followers": (_LOST,),
    "cut_one_way": (_LOST,),
    "cut_leader_from_etcd": (_LOST,),
    "drop_packets": (_LOST,),
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
    "fill_disk": (Rule("refusals_told", 1, "the broker told that its disk takes no more"),),
    "flip_bit": (
        Rule("lives_ended", 1, "the broker was down meanwhile"),
        Rule("damage_told", 1, "the broker found the damage by its checksum"),
    ),
    "kill_etcd_member": (_MEMBERS,),
    "kill_etcd_leader": (_MEMBERS, Rule("other_etcd_leader", 1, "another member leads")),
    "kill_all_etcd": (_MEMBERS, Rule("store_lost_told", 1, "services told that it is away")),
    "skew_clock": (Rule("skew_s", SKEW_SEEN_S, "how far the leader's stamps are off"),),
}
assert RULES.keys() == KINDS.keys(), "every kind has its effect"


class StoryRule(NamedTuple):
    """Brokers tell `told` while the story lasts, at least `least` times."""

    told: Kind
    least: int
    shows: str


# Of stories that are to bring about more than their faults do one by one.
STORY_RULES: dict[str, StoryRule] = {
    "truncation": StoryRule(Kind.TRUNCATION, 1, "a replica cut off what its new leader has not"),
}


def lacking_of_story(name: str, told: int) -> list[str]:
    """`told`: how often brokers told what this step is to bring about."""
    rule = STORY_RULES.get(name)
    if rule is None or told >= rule.least:
        return []
    return [
        f"{rule.told.value} was told {told} times, at least {rule.least} shows an effect "
        f"({rule.shows})"
    ]


def lacking(kind: str, measures: Measures, times: int = 1) -> list[str]:
    """What was not seen of a fault that came `times` times; empty: it had its effect."""
    return [
        f"{rule.measure} is {measures.get(rule.measure, 0):g}, at least "
        f"{_least(rule, times):g} shows an effect ({rule.shows})"
        for rule in RULES[kind]
        if measures.get(rule.measure, 0) < _least(rule, times)
    ]


def _least(rule: Rule, times: int) -> float:
    """Each of several ends a life."""
    return rule.least * times if rule.measure == "lives_ended" else rule.least
