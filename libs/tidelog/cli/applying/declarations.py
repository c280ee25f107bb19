"""Topics as a file declares them, and the strict checks of such a file. Pure functions."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidelog.cli.exit_status import UsageError
from tidelog.model import MAX_INT32
from tidelog.units import parse_setting

# Topics of all files of one command.
MAX_DECLARED_TOPICS = 10_000

_FORM = "give a mapping `topics:` of names, each with partitions, replication_factor and config"
_ROOT_FIELDS = ("topics",)
_COUNTS = ("partitions", "replication_factor")
_TOPIC_FIELDS = (*_COUNTS, "config")
_MIN_ISR = "min_insync_replicas"


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic as a file declares it. A field that is None is not compared and never changed.

    - `config`: every key that is set for the topic; other keys have their defaults.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] | None = field(default=None, hash=False)


def declared_topics(documents: Iterable[tuple[str, Any]]) -> list[DeclaredTopic]:
    """Returns the topics of all files, ordered by name. `documents`: each source and its content.

    Raises `UsageError`, which names the source, the topic and the fault.
    """
    found: dict[str, DeclaredTopic] = {}
    sources: dict[str, str] = {}
    for source, document in documents:
        for name, stated in _topics_of(document, source).items():
            if name in found:
                raise UsageError(
                    f"topic {name} is declared in {sources[name]} and in {source}; declare it once"
                )
            sources[name] = source
            found[name] = _topic(name, stated, f"{source}: topic {name}")
    if len(found) > MAX_DECLARED_TOPICS:
        raise UsageError(
            f"{len(found):,} topics are declared; apply at most {MAX_DECLARED_TOPICS:,} at once"
        )
    return [found[name] for name in sorted(found)]


def _topics_of(document: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise UsageError(f"{source} is not a mapping; {_FORM}")
    _check_fields(document, _ROOT_FIELDS, source)
    topics = document.get("topics")
    if not isinstance(topics, dict):
        raise UsageError(f"{source} declares no topics; {_FORM}")
    for name in topics:
        if not isinstance(name, str):
            raise UsageError(f"{source}: the topic name {name!r} is not text; put it in quotes")
    return topics


def _topic(name: str, stated: Any, where: str) -> DeclaredTopic:
    if stated is None:
        stated = {}
    if not isinstance(stated, dict):
        raise UsageError(f"{where} is not a mapping; {_FORM}")
    _check_fields(stated, _TOPIC_FIELDS, where)
    counts = {key: _count(stated[key], f"{where}: {key}") for key in _COUNTS if key in stated}
    config = _config(stated["config"], where) if "config" in stated else None
    topic = DeclaredTopic(name, config=config, **counts)
    _check_min_isr(topic, where)
    return topic


def _check_fields(stated: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    for name in stated:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(known)}"
            raise UsageError(f"{where} has a field {name!r}, which does not exist; {hint}")


def _count(stated: Any, where: str) -> int:
    if not isinstance(stated, int) or isinstance(stated, bool) or not 1 <= stated <= MAX_INT32:
        raise UsageError(f"{where} is {stated!r}; give a whole number from 1 to {MAX_INT32:,}")
    return stated


def _config(stated: Any, where: str) -> Mapping[str, str]:
    if stated is None:
        stated = {}
    if not isinstance(stated, dict):
        raise UsageError(f"{where}: config is not a mapping; give keys as retention_ms: 7d")
    return MappingProxyType({_key(k, where): _value(k, v, where) for k, v in stated.items()})


def _key(stated: Any, where: str) -> str:
    if not isinstance(stated, str) or not stated:
        raise UsageError(f"{where}: the configuration key {stated!r} is not text")
    return stated


def _value(key: str, stated: Any, where: str) -> str:
    """Returns the value as the cluster takes it. Durations and sizes may have units."""
    if isinstance(stated, bool):
        return str(stated).lower()
    if isinstance(stated, int):
        return str(stated)
    if isinstance(stated, str) and stated:
        try:
            return parse_setting(key, stated)
        except ValueError as error:
            raise UsageError(f"{where}: config {key}: {error}") from None
    raise UsageError(
        f"{where}: config {key} is {stated!r}; give a number, true, false or text, or leave the "
        "key out for its default"
    )


def _check_min_isr(topic: DeclaredTopic, where: str) -> None:
    """The controller can check this only once the topic has its replicas."""
    factor, min_isr = topic.replication_factor, (topic.config or {}).get(_MIN_ISR, "")
    if factor is not None and min_isr.isdecimal() and int(min_isr) > factor:
        raise UsageError(
            f"{where}: {_MIN_ISR} is {min_isr} and replication_factor {factor}: no write with "
            "acks=all would succeed; give it at most the replication factor"
        )
