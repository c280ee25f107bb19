"""The topic that holds every service's state changes, and internal topics in general. Pure.

A record's key is the partition that it is about, else the topic, else the reporting service, so
that events about one subject stay in order. Its value is the JSON form. An event may be there twice
if its leader died before it answered."""

from __future__ import annotations

import json

from tidelog.state_changes import json_form
from tidelog.state_changes.event import NO_PARTITION, StateChange

STATE_CHANGES_TOPIC = "__state_changes"
# Topics that a cluster keeps for itself; users may read them.
INTERNAL_PREFIX = "__"


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


def is_published(change: StateChange) -> bool:
    """Returns whether an event belongs in the topic. Events about the topic itself are only in logs
    and rings, because writing one would cause the next."""
    return change.topic != STATE_CHANGES_TOPIC


def key_of(change: StateChange) -> bytes:
    """
    >>> from tidelog.state_changes.event import Kind, Stage
    >>> key_of(StateChange(0, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, topic="sea"))
    b'sea'
    """
    if not change.topic:
        return change.service.encode()
    about = change.topic
    return (about if change.partition == NO_PARTITION else f"{about}/{change.partition}").encode()


def value_of(change: StateChange) -> bytes:
    return json.dumps(json_form.to_object(change), ensure_ascii=False).encode()


def from_value(value: bytes) -> StateChange:
    """Raises `NotAStateChangeError`."""
    try:
        text = value.decode()
        document = json.loads(text)
        if "\\u" in text:
            # Half of a surrogate pair has no UTF-8, so it could not be output.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise json_form.NotAStateChangeError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise json_form.NotAStateChangeError("a state change is a JSON object")
    return json_form.from_object(document)
