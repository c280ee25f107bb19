"""AdminService, for descriptions of topics and brokers.

Turns requests into events of the controller, and its replies into responses.
"""

from __future__ import annotations

import asyncio

from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_calls import NO_ID, AdminCalls, error_of, recovery_choices
from tidelog_controller.edge.caller_context import Context
from tidelog_controller.state.admin_answers import (
    BrokersAnswer,
    BrokerView,
    RecoveryAnswer,
    RecoveryView,
    SurvivorView,
    TopicsAnswer,
    TopicView,
)
from tidelog_controller.state.admin_requests import (
    DescribeBrokers,
    DescribeRecovery,
    DescribeTopics,
)
from tidelog_controller.state.metadata_records import Partition
from tidelog_runtime.metadata.schema import RUNNING
from tidelog_runtime.turns import add_in_turns, in_turns


class DescriptionCalls(AdminCalls):
    async def DescribeTopics(  # noqa: N802 - the generated name
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        reply = await self._submit(
            DescribeTopics(
                NO_ID,
                tuple(request.topics),
                request.internal,
                request.without_partitions,
                request.page_size,
                request.page_token,
            ),
            context,
        )
        answer = reply.answer
        if not isinstance(answer, TopicsAnswer):
            return pb.DescribeTopicsResponse(error=error_of(reply))
        response = pb.DescribeTopicsResponse(next_page_token=answer.next_page_token)
        for view in answer.topics:
            await _describe_topic(response.topics.add(), view)
        return response

    async def DescribeRecovery(  # noqa: N802 - the generated name
        self, request: pb.DescribeRecoveryRequest, context: Context
    ) -> pb.DescribeRecoveryResponse:
        reply = await self._submit(
            DescribeRecovery(
                NO_ID,
                request.topic,
                tuple(request.partitions),
                request.timeout_ms,
                request.page_size,
                request.page_token,
                choices=await recovery_choices(request.choices),
            ),
            context,
        )
        answer = reply.answer
        if not isinstance(answer, RecoveryAnswer):
            return pb.DescribeRecoveryResponse(error=error_of(reply))
        response = pb.DescribeRecoveryResponse(next_page_token=answer.next_page_token)
        await add_in_turns(response.partitions, _recovery, answer.partitions)
        return response

    async def DescribeBrokers(  # noqa: N802 - the generated name
        self, request: pb.DescribeBrokersRequest, context: Context
    ) -> pb.DescribeBrokersResponse:
        reply = await self._submit(DescribeBrokers(NO_ID, tuple(request.broker_ids)), context)
        answer = reply.answer
        if not isinstance(answer, BrokersAnswer):
            return pb.DescribeBrokersResponse(error=error_of(reply))
        return pb.DescribeBrokersResponse(brokers=await in_turns(_broker, answer.brokers))


async def _describe_topic(wire: pb.TopicDetails, view: TopicView) -> None:
    """Fills the message in place, since assigning a message copies it.

    Yields after each topic; the topics of a page have at most one page of partitions in total.
    """
    entry = view.entry
    wire.topic = view.name
    wire.topic_id = entry.topic_id
    wire.partition_count = entry.partitions
    wire.replication_factor = entry.replication_factor
    wire.config.extend(
        pb.ConfigEntry(
            key=key, value=value, is_set=is_set, default_value=default, description=description
        )
        for key, value, is_set, default, description in view.config
    )
    wire.revision = view.revision
    wire.deleting = view.deleting
    wire.partitions_being_removed = view.partitions_being_removed
    wire.internal = view.internal
    await add_in_turns(wire.partitions, lambda each: _partition(*each), view.partitions)
    await asyncio.sleep(0)


def _partition(number: int, held: Partition | None) -> pb.PartitionDetails:
    if held is None:
        return pb.PartitionDetails(
            partition=number, leader=-1, leader_epoch=-1, unclean_leader_epoch=-1
        )
    state, moving = held.state, held.state.moving
    return pb.PartitionDetails(
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=[member.broker_id for member in state.isr],
        eligible=[member.broker_id for member in state.eligible],
        min_isr=state.min_isr,
        revision=held.revision,
        move=None
        if moving is None
        else pb.PartitionMove(
            operation_id=moving.operation, original=moving.original, target=moving.target
        ),
        unclean_leader_epoch=state.unclean_leader_epoch,
    )


def _recovery(view: RecoveryView) -> pb.RecoveryDetails:
    return pb.RecoveryDetails(
        topic=view.name.topic,
        topic_id=view.held.state.topic_id,
        partition=view.name.partition,
        revision=view.held.revision,
        last_known=view.last_known,
        waits_for=view.waits_for,
        replicas=[_survivor(survivor) for survivor in view.survivors],
    )


def _survivor(view: SurvivorView) -> pb.ReplicaSurvivor:
    log = view.log
    if log is None:
        return pb.ReplicaSurvivor(broker_id=view.broker_id, problem=view.problem, last_epoch=-1)
    return pb.ReplicaSurvivor(
        broker_id=view.broker_id,
        described=True,
        last_epoch=log.epochs[-1][0] if log.epochs else -1,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark if log.high_watermark >= 0 else None,
        whole=view.whole,
        lost_records=view.lost_records if view.lost_records >= 0 else None,
    )


def _broker(view: BrokerView) -> pb.BrokerDetails:
    registration, departure = view.registration, view.departure
    status, address, rack = pb.BROKER_STATUS_GONE, "", ""
    if registration is not None:
        address, rack = registration.address, registration.rack
        running = registration.state == RUNNING
        status = pb.BROKER_STATUS_RUNNING if running else pb.BROKER_STATUS_STOPPING
    elif departure is not None:
        address = departure.address
    gone = registration is None and departure is not None
    return pb.BrokerDetails(
        broker_id=view.broker_id,
        status=status,
        address=address,
        rack=rack,
        broker_epoch=view.broker_epoch,
        maintenance=view.maintenance,
        removed=view.removed,
        replicas=view.replicas,
        leaders=view.leaders,
        preferred_leaders=view.preferred_leaders,
        out_of_sync=view.out_of_sync,
        moves_in=view.moves_in,
        moves_out=view.moves_out,
        gone_at_ms=departure.at_ms if gone and departure is not None else 0,
        not_added=view.not_added,
    )
