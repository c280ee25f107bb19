"""Admin requests that create, change, describe, delete and recover topics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog import change_warnings
from tidelog.admin_messages import (
    AlteredConfig,
    CreatedTopic,
    RecoveredPartition,
    Recovery,
    RecoveryChoice,
    ResizedTopic,
    TopicDetails,
)
from tidelog.client.arguments import checks_arguments, instance, several
from tidelog.client.controller_calls import DEFAULT_TIMEOUT_MS, ControllerCalls, no_answer
from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.client.request_fields import built, built_from
from tidelog.client.request_parts import in_parts, name_bytes, number_bytes
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.inspection.unprotected_topics import PROTECTING_FACTOR, is_unprotected
from tidelog.rpc.message_codec import from_wire
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import admin_pb2 as pb

# Replication factor of a topic that is created without one, if there are enough brokers.
DEFAULT_REPLICATION_FACTOR = 3
# Time limit of the query for the number of brokers, which the warning of a creation names.
COUNT_BROKERS_MS = 2_000
PAGE_SIZE = 1_000
MAX_PAGES = 1_000
TOPICS_FIELD = "tidelog.v1.DescribeTopicsRequest.topics"
PARTITIONS_FIELD = "tidelog.v1.DescribeRecoveryRequest.partitions"

# Replicas of each partition; the first is the preferred one.
Assignment = Sequence[Sequence[int]]


@checks_arguments(choices=several(instance(RecoveryChoice)))
class TopicRequests:
    _controllers: ControllerCalls

    async def describe_cluster(self) -> ClusterDescription:
        raise NotImplementedError

    async def describe_topic(self, topic: str) -> TopicDescription:
        raise NotImplementedError

    async def default_replication_factor(
        self, topic: str, operation_id: str = "", timeout_ms: int | None = None
    ) -> int:
        raise NotImplementedError

    async def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        assignment: Assignment = (),
        operation_id: str = "",
        dry_run: bool = False,
    ) -> CreatedTopic:
        """Creates a topic. Returns when its replicas have started, or after `timeout_ms`.

        Counts that are None are those of the `assignment`, else 1 partition and
        `default_replication_factor`. All tries have one operation id. A try whose answer was lost
        may have created the topic, so afterwards an existing topic with the same counts counts as
        created."""
        if partitions is None:
            partitions = len(assignment) or 1
        if replication_factor is None and assignment:
            replication_factor = len(assignment[0])
        if replication_factor is None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    replication_factor = await self.default_replication_factor(
                        topic, operation_id, timeout_ms
                    )
            except TimeoutError:
                raise no_answer("no broker said how many brokers there are", sent=False) from None
        request = built(
            pb.CreateTopicRequest,
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
            dry_run=dry_run,
            timeout_ms=timeout_ms,
            assignment=_assignment_to_wire(assignment),
            operation_id=operation_id or self._controllers.new_operation_id(),
        )
        answer, answered = await self._controllers.ask_in_doubt(
            request, pb.CreateTopicResponse, timeout_ms
        )
        error, trace_id = answered.error, answered.trace_id
        if error is not None:
            found = await self._created_before(topic, error) if answered.in_doubt else None
            if found is None or (
                (found.partition_count, found.replication_factor)
                != (partitions, replication_factor)
            ):
                raise error
            created = CreatedTopic(found.topic_id, (), trace_id)
        else:
            created = from_wire(answer, CreatedTopic, trace_id=trace_id)
        return replace(created, warnings=await self._creation_warnings(topic, replication_factor))

    async def _created_before(self, topic: str, error: TidelogError) -> TopicDescription | None:
        """Returns the topic that an earlier try may have created."""
        is_there = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        return await self.describe_topic(topic) if is_there else None

    async def _creation_warnings(self, topic: str, replication_factor: int) -> tuple[str, ...]:
        brokers = PROTECTING_FACTOR
        if is_unprotected(replication_factor):
            # The topic exists now, so that a missing answer is no error.
            with contextlib.suppress(TidelogError, UnreachableError, TimeoutError):
                async with asyncio.timeout(COUNT_BROKERS_MS / 1000):
                    brokers = len((await self.describe_cluster()).brokers)
        return tuple(change_warnings.of_creation(topic, replication_factor, brokers))

    async def delete_topic(
        self,
        topic: str,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        topic_id: str = "",
        expected_revision: int = 0,
    ) -> tuple[int, ...]:
        """Deletes a topic. Returns the brokers that have not deleted their replicas within
        `timeout_ms`; they continue. Rejected if the topic has another id than `topic_id`, or has
        changed since `expected_revision`."""
        request = built(
            pb.DeleteTopicRequest,
            topic=topic,
            topic_id=topic_id,
            timeout_ms=timeout_ms,
            expected_revision=expected_revision,
        )
        answer, answered = await self._controllers.ask_in_doubt(
            request, pb.DeleteTopicResponse, timeout_ms
        )
        error = answered.error
        if error is not None:
            # An earlier try has deleted it. Another topic may have the name by now.
            if answered.in_doubt and error.code in FINAL_ANSWERS:
                return ()
            raise error
        return tuple(answer.pending_brokers)

    async def plan_deletion(self, topic: str, *, expected_revision: int = 0) -> ResizedTopic:
        """Returns what a deletion would delete."""
        request = built(
            pb.DeleteTopicRequest, topic=topic, dry_run=True, expected_revision=expected_revision
        )
        answer = await self._controllers.ask(request, pb.DeleteTopicResponse)
        return from_wire(answer, ResizedTopic, revision=0)

    async def alter_topic_config(
        self,
        topic: str,
        changed: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> AlteredConfig:
        """Sets the keys in `changed`, and resets those in `unset` to their defaults. Succeeds if
        all values are already as requested, so it can be repeated."""
        request = built(
            pb.AlterTopicConfigRequest,
            topic=topic,
            topic_id=topic_id,
            set=dict(changed or {}),
            unset=unset,
            expected_revision=expected_revision,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        answer = await self._controllers.ask(request, pb.AlterTopicConfigResponse, timeout_ms)
        altered = from_wire(answer, AlteredConfig)
        return replace(altered, warnings=tuple(change_warnings.of_config(altered.changes)))

    async def add_partitions(
        self,
        topic: str,
        partitions: int,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        assignment: Assignment = (),
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> ResizedTopic:
        """Increases the number of partitions to `partitions`. Records with a key go to other
        partitions from then on."""
        request = built(
            pb.AddPartitionsRequest,
            topic=topic,
            topic_id=topic_id,
            partitions=partitions,
            assignment=_assignment_to_wire(assignment),
            expected_revision=expected_revision,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        answer = await self._controllers.ask(request, pb.AddPartitionsResponse, timeout_ms)
        warnings = tuple(change_warnings.of_added_partitions(answer.added))
        return from_wire(answer, ResizedTopic, partitions=answer.added, warnings=warnings)

    async def remove_partitions(
        self,
        topic: str,
        partitions: int,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        confirm_topic: str = "",
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> ResizedTopic:
        """Keeps the first `partitions` partitions and deletes the others with their data.
        `confirm_topic`: the topic's name, repeated as a confirmation."""
        request = built(
            pb.RemovePartitionsRequest,
            topic=topic,
            topic_id=topic_id,
            partitions=partitions,
            confirm_topic=confirm_topic,
            expected_revision=expected_revision,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
        )
        answer = await self._controllers.ask(request, pb.RemovePartitionsResponse, timeout_ms)
        warnings = tuple(change_warnings.of_removed_partitions(answer.removed, answer.brokers))
        return from_wire(answer, ResizedTopic, partitions=answer.removed, warnings=warnings)

    async def recover_partitions(
        self,
        topic: str,
        partitions: Sequence[int] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        from_live_replicas: bool = False,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[RecoveredPartition]:
        """Consents to the loss of records, and waits for the elections.

        A partition elects its best surviving replica if no replica with every committed record
        will return.

        - `partitions`: empty: all that have no leader.
        - `from_live_replicas`: do not wait for the replicas that were last known to be in sync.
        - `choices`: the leaders to elect, regardless of lost records; see `describe_recovery`."""
        request = built(
            pb.RecoverPartitionsRequest,
            topic=topic,
            partitions=partitions,
            from_live_replicas=from_live_replicas,
            timeout_ms=timeout_ms,
            choices=[built_from(choice, pb.RecoveryChoice) for choice in choices],
        )
        answer = await self._controllers.ask(request, pb.RecoverPartitionsResponse, timeout_ms)
        return [from_wire(result, RecoveredPartition) for result in answer.partitions]

    async def describe_recovery(
        self,
        topic: str = "",
        partitions: Sequence[int] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[Recovery]:
        """Returns the logs of the surviving replicas of partitions without a leader; without a
        topic, of all topics.

        - `timeout_ms`: how long brokers may take to describe their logs.
        - `choices`: validated and rejected as by `recover_partitions`, and described as well."""
        chosen = {choice.partition for choice in choices}
        found: list[Recovery] = []
        for place, part in enumerate(
            in_parts(dict.fromkeys(partitions), PARTITIONS_FIELD, number_bytes)
        ):
            # The first request has all choices: they are validated together and described by it.
            numbers = [number for number in part if not place or number not in chosen]
            if numbers or not place:
                named = choices if not place else ()
                found += await self._recoveries(topic, numbers, timeout_ms, named)
        return found

    async def _recoveries(
        self,
        topic: str,
        partitions: Sequence[int],
        timeout_ms: int,
        choices: Sequence[RecoveryChoice],
    ) -> list[Recovery]:
        found: list[Recovery] = []
        token = ""
        for _ in range(MAX_PAGES):
            request = built(
                pb.DescribeRecoveryRequest,
                topic=topic,
                partitions=partitions,
                timeout_ms=timeout_ms,
                page_size=PAGE_SIZE,
                page_token=token,
                choices=[built_from(choice, pb.RecoveryChoice) for choice in choices],
            )
            answer = await self._controllers.ask(request, pb.DescribeRecoveryResponse, timeout_ms)
            found += [from_wire(details, Recovery) for details in answer.partitions]
            token = answer.next_page_token
            if not token:
                break
        return found

    async def topic_details(
        self,
        topics: Sequence[str] = (),
        *,
        internal: bool = False,
        with_partitions: bool = True,
    ) -> list[TopicDetails]:
        """Returns the topics with these names; without names all topics, and with `internal` the
        cluster's internal ones, too."""
        found: dict[str, TopicDetails] = {}
        for part in in_parts(dict.fromkeys(topics), TOPICS_FIELD, name_bytes):
            await self._add_details(found, part, internal, with_partitions)
        return list(found.values())

    async def _add_details(
        self,
        found: dict[str, TopicDetails],
        topics: Sequence[str],
        internal: bool,
        with_partitions: bool,
    ) -> None:
        token = ""
        for _ in range(MAX_PAGES):
            request = built(
                pb.DescribeTopicsRequest,
                topics=topics,
                internal=internal,
                without_partitions=not with_partitions,
                page_size=PAGE_SIZE,
                page_token=token,
            )
            answer = await self._controllers.ask(request, pb.DescribeTopicsResponse)
            for details in answer.topics:
                _add(found, from_wire(details, TopicDetails))
            token = answer.next_page_token
            if not token:
                break


def _add(found: dict[str, TopicDetails], details: TopicDetails) -> None:
    """Adds a topic or its continuation from the next page. A topic that was created again meanwhile
    replaces the previous one."""
    before = found.get(details.topic)
    if before is not None and before.topic_id == details.topic_id:
        details = replace(details, partitions=before.partitions + details.partitions)
    found[details.topic] = details


def _assignment_to_wire(assignment: Assignment) -> list[pb.ReplicaAssignment]:
    return [built(pb.ReplicaAssignment, replicas=replicas) for replicas in assignment]
