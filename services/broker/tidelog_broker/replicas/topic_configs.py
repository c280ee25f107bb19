"""The effective configuration of each replica.

It comes from the controller's commands or from the watch, whichever has the newer revision of the
topic's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import structlog

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.topic_config import TopicConfig

_log = structlog.get_logger()


class _Held(NamedTuple):
    topic_id: str
    config: TopicConfig
    revision: int


class _Parsed(NamedTuple):
    given: Mapping[str, str]
    config: TopicConfig


class BatchLimits(NamedTuple):
    """The limits that a topic's configuration sets for single batches.

    - `max_bytes`, `max_records`: of one batch, as it is sent.
    - `max_ahead_ms`: how far a timestamp may be ahead of the clock; UNLIMITED: any distance.
    - `append_time`: records get the time of their append.
    """

    max_bytes: int
    max_records: int
    max_ahead_ms: int
    append_time: bool

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        return cls(
            config.max_batch_bytes,
            config.max_batch_records,
            config.timestamp_max_ahead_ms,
            config.timestamp_type == "append",
        )


class TopicConfigs:
    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        # The newest by topic: all of its replicas share it.
        self._parsed: dict[str, _Parsed] = {}
        # By topic, so that news of one topic costs nothing for the replicas of others.
        self._held: dict[str, dict[TopicPartition, _Held]] = {}

    def of(self, name: TopicPartition) -> TopicConfig:
        return self._held[name.topic][name].config

    def take(
        self, name: TopicPartition, topic_id: str, config: Mapping[str, str], revision: int
    ) -> TopicConfig:
        """Takes the configuration of a command, unless a newer one is known.

        Returns the effective one. Raises INVALID_CONFIG.
        """
        live = self._cache.topics.get(name.topic)
        if live is not None and live.entry.topic_id == topic_id and live.revision > revision:
            config, revision = live.entry.config, live.revision
        held = self._held.get(name.topic, {}).get(name)
        if held is None or held.topic_id != topic_id or held.revision <= revision:
            held = _Held(topic_id, self._parse(name.topic, config), revision)
            self._held.setdefault(name.topic, {})[name] = held
        return held.config

    def is_valid(self, topic: str, given: Mapping[str, str]) -> bool:
        try:
            self._parse(topic, given)
        except TidelogError:
            return False
        return True

    def _parse(self, topic: str, given: Mapping[str, str]) -> TopicConfig:
        known = self._parsed.get(topic)
        if known is None or known.given != given:
            known = self._parsed[topic] = _Parsed(dict(given), TopicConfig.parse_stored(given))
        return known.config

    def seen(
        self, topics: Iterable[str], takes: Callable[[TopicPartition], bool]
    ) -> Iterator[tuple[TopicPartition, TopicConfig]]:
        """Yields the replicas of these topics whose configuration the watch has changed.

        `takes`: whether a replica takes a new configuration now.
        """
        concerned = dict.fromkeys(topics)
        held_there = [item for t in concerned for item in self._held.get(t, {}).items()]
        for name, held in held_there:
            if not takes(name):
                continue
            try:
                config = self.take(name, held.topic_id, {}, held.revision - 1)
            except TidelogError as error:
                # The value may have been written by hand: the previous one stays.
                _log.error("topic_config_invalid", topic=name.topic, why=error.message)
                continue
            if config != held.config:
                yield name, config

    def forget(self, name: TopicPartition) -> None:
        held = self._held.get(name.topic, {})
        held.pop(name, None)
        if not held:
            self._held.pop(name.topic, None)
            self._parsed.pop(name.topic, None)
