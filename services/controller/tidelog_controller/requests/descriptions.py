"""Descriptions of topics and brokers. Pure: reads the context, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.admin_messages import ConfigEntry
from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog.model import TopicPartition
from tidelog.request_bounds import page_size
from tidelog.state_changes.topic import is_internal
from tidelog_controller.policies.electability import candidates
from tidelog_controller.policies.restart_check import PartitionHealth, check_restart
from tidelog_controller.requests.leader_view import check_known_broker
from tidelog_controller.requests.operation_views import position_of
from tidelog_controller.state.admin_answers import (
    BrokersAnswer,
    BrokerView,
    RestartAnswer,
    TopicsAnswer,
    TopicView,
)
from tidelog_controller.state.admin_requests import (
    CheckRestart,
    DescribeBrokers,
    DescribeTopics,
)
from tidelog_controller.state.context import Context
from tidelog_controller.state.known import Topic
from tidelog_runtime.metadata.schema import Departure
from tidelog_runtime.topic_config import TopicConfig

# Topics.


def describe_topics(context: Context, request: DescribeTopics) -> TopicsAnswer:
    names = request.topics or tuple(
        name for name in context.topics if request.internal or not is_internal(name)
    )
    unknown = [name for name in names if name not in context.topics]
    if unknown:
        raise unknown_topic(unknown[0])
    first = _cursor(request.page_token)
    left = page_size(request.page_size)
    views: list[TopicView] = []
    for name in sorted(set(names)):
        if name < first[0]:
            continue
        if not left:
            return TopicsAnswer(tuple(views), f"{name}:0")
        start = first[1] if name == first[0] else 0
        if request.without_partitions:
            views.append(_topic_view(context, name, ()))
            left -= 1
            continue
        count = context.topics[name].entry.partitions
        end = min(count, start + left)
        views.append(_topic_view(context, name, range(start, end)))
        left -= end - start
        if end < count:
            return TopicsAnswer(tuple(views), f"{name}:{end}")
    return TopicsAnswer(tuple(views), "")


def _cursor(page_token: str) -> tuple[str, int]:
    """The topic and partition with which a page begins."""
    if not page_token:
        return "", 0
    topic, separator, number = page_token.rpartition(":")
    if not separator:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the page token {page_token[:40]!r} was never given; begin without one",
        )
    return topic, position_of(number)


def _topic_view(context: Context, name: str, partitions: range | tuple[()]) -> TopicView:
    topic = context.topics[name]
    removal = context.removals.get(name)
    going = 0
    if removal is not None:
        going = sum(p.partition >= removal.entry.first for p in context.partitions_of(name))
    held = ((n, context.partition(TopicPartition(name, n))) for n in partitions)
    topic_id = topic.entry.topic_id
    states = tuple(
        (number, p if p is not None and p.state.topic_id == topic_id else None)
        for number, p in held
    )
    return TopicView(
        name,
        topic.entry,
        tuple(_config_keys(topic)),
        topic.revision,
        name in context.deletions,
        going,
        states,
        is_internal(name),
    )


def _config_keys(topic: Topic) -> Iterator[ConfigEntry]:
    in_force, defaults = topic.config.as_text(), TopicConfig().as_text()
    for key in sorted(in_force):
        description = TopicConfig.model_fields[key].description or ""
        yield ConfigEntry(key, in_force[key], key in topic.entry.config, defaults[key], description)


# Brokers.


def describe_brokers(
    context: Context, request: DescribeBrokers, departed: Mapping[int, Departure]
) -> BrokersAnswer:
    """`departed`: by broker, how its last ended incarnation left."""
    holding = {b for b in departed if next(context.replicas_on(b), None) is not None}
    known = {*context.brokers, *context.maintenance, *context.removed_brokers, *holding}
    known |= _holders(context)
    for broker_id in request.broker_ids:
        if broker_id not in known:
            check_known_broker(context, broker_id)
    asked = sorted(set(request.broker_ids) or known)
    return BrokersAnswer(tuple(_broker_view(context, b, departed.get(b)) for b in asked))


def _holders(context: Context) -> set[int]:
    return {
        broker_id
        for topic in context.topics
        for name in context.partitions_of(topic)
        if (held := context.partition(name)) is not None
        for broker_id in held.state.replicas
    }


def _broker_view(context: Context, broker_id: int, departure: Departure | None) -> BrokerView:
    broker = context.brokers.get(broker_id)
    states = [held.state for _, held in context.replicas_on(broker_id)]
    return BrokerView(
        broker_id,
        broker.registration if broker is not None else None,
        broker.broker_epoch if broker is not None else 0,
        departure,
        broker_id in context.maintenance,
        broker_id in context.removed_brokers,
        len(states),
        sum(state.leader == broker_id for state in states),
        sum(state.replicas[0] == broker_id for state in states),
        sum(broker_id not in state.isr_ids for state in states),
        sum(broker_id in state.adding for state in states),
        sum(broker_id in state.leaving for state in states),
        broker is not None
        and broker_id not in context.removed_brokers
        and not context.takes_part(broker_id),
    )


# Restarts.


def checked_restart(context: Context, request: CheckRestart) -> RestartAnswer:
    check_known_broker(context, request.broker_id)
    healths: dict[TopicPartition, PartitionHealth] = {}
    for name, held in context.replicas_on(request.broker_id):
        topic, state = context.topics.get(name.topic), context.state_to_stay(name)
        if topic is None or state is None:
            continue
        able = [m.broker_id for m in candidates(state.isr, context.live, topic.rules)]
        eligible = [m.broker_id for m in candidates(state.eligible, context.live, topic.rules)]
        healths[name] = PartitionHealth(
            held.state.replicas, state.leader, able, eligible, state.min_isr
        )
    check = check_restart(request.broker_id, healths, context.running_brokers())
    first = position_of(request.page_token)
    end = first + page_size(request.page_size)
    token = str(end) if end < len(check.findings) else ""
    return RestartAnswer(check.safe, check.counts, tuple(check.findings[first:end]), token)
