"""Admin requests about brokers and leadership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.admin_messages import BrokerDetails, LeaderChange, RestartCheck, RestartFinding
from tidelog.client.arguments import checks_arguments
from tidelog.client.controller_calls import DEFAULT_TIMEOUT_MS, ControllerCalls
from tidelog.client.request_fields import built
from tidelog.client.request_parts import in_parts, number_bytes
from tidelog.model import TopicPartition
from tidelog.rpc.message_codec import from_wire
from tidelog.v1 import admin_pb2 as pb

PAGE_SIZE = 1_000
MAX_PAGES = 1_000
BROKER_IDS_FIELD = "tidelog.v1.DescribeBrokersRequest.broker_ids"


@checks_arguments()
class BrokerRequests:
    _controllers: ControllerCalls

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]:
        """Returns the brokers with these ids; without ids, every broker that is registered, holds
        replicas, is in maintenance or was removed."""
        found: list[BrokerDetails] = []
        for part in in_parts(dict.fromkeys(broker_ids), BROKER_IDS_FIELD, number_bytes):
            request = built(pb.DescribeBrokersRequest, broker_ids=part)
            answer = await self._controllers.ask(request, pb.DescribeBrokersResponse)
            found += [from_wire(details, BrokerDetails) for details in answer.brokers]
        return found

    async def elect_preferred_leaders(
        self,
        partitions: Mapping[str, Sequence[int]] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]:
        """Elects preferred replicas as leaders; returns the partitions that had another leader.

        `partitions`: partition numbers by topic, where no numbers mean all partitions of the
        topic; None: all topics."""
        selectors = [
            built(pb.PartitionSelector, topic=topic, partitions=numbers)
            for topic, numbers in (partitions or {}).items()
        ]
        request = built(
            pb.ElectPreferredLeadersRequest,
            partitions=selectors,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        answer = await self._controllers.ask(request, pb.ElectPreferredLeadersResponse, timeout_ms)
        return [from_wire(one, LeaderChange) for one in answer.partitions]

    async def move_leaders(
        self,
        leaders: Mapping[TopicPartition, int],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]:
        """Makes the chosen replicas the leaders and preferred replicas of their partitions."""
        moves = [
            built(pb.LeaderMove, topic=name.topic, partition=name.partition, leader=leader)
            for name, leader in leaders.items()
        ]
        request = built(pb.MoveLeadersRequest, moves=moves, dry_run=dry_run, timeout_ms=timeout_ms)
        answer = await self._controllers.ask(request, pb.MoveLeadersResponse, timeout_ms)
        return [from_wire(one, LeaderChange) for one in answer.partitions]

    async def set_maintenance(
        self,
        broker_ids: Sequence[int],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        maintenance: bool = True,
        dry_run: bool = False,
    ) -> tuple[list[LeaderChange], int]:
        """Starts or ends maintenance of brokers.

        Returns the changes of leaders, and the number of partitions that the brokers continue to
        lead because no other replica can."""
        request = built(
            pb.SetMaintenanceRequest,
            broker_ids=broker_ids,
            maintenance=maintenance,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        answer = await self._controllers.ask(request, pb.SetMaintenanceResponse, timeout_ms)
        leaders = [from_wire(one, LeaderChange) for one in answer.leaders]
        return leaders, answer.leaders_kept

    async def check_restart(self, broker_id: int) -> RestartCheck:
        """Returns the effects of stopping the broker now."""
        findings: tuple[RestartFinding, ...] = ()
        token = ""
        for _ in range(MAX_PAGES):
            request = built(
                pb.CheckRestartRequest,
                broker_id=broker_id,
                page_size=PAGE_SIZE,
                page_token=token,
            )
            answer = await self._controllers.ask(request, pb.CheckRestartResponse)
            check = from_wire(answer, RestartCheck)
            findings += check.findings
            token = answer.next_page_token
            if not token:
                break
        return replace(check, findings=findings)
