"""Admin requests that create, change, delete and recover topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.client.arguments import checks_arguments, instance, several
from tidelog.client.controller_calls import DEFAULT_TIMEOUT_MS, ControllerCalls, no_answer
from tidelog.client.descriptions import TopicDescription
from tidelog.client.request_fields import built
from tidelog.client.request_parts import in_parts, number_bytes
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import admin_pb2 as pb

# Replication factor of a topic that is created without one, if there are enough brokers.
DEFAULT_REPLICATION_FACTOR = 3
PAGE_SIZE = 1_000
MAX_PAGES = 1_000
PARTITIONS_FIELD = "tidelog.v1.DescribeRecoveryRequest.partitions"

# Replicas of each partition; the first is the preferred one.
Assignment = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or in a dry run could be.

    - `pending_brokers`: brokers that have not started their replicas in time; they continue.
    - `trace_id`: 32 hexadecimal digits, carried by all events of the creation.
    - `assignment`: from a dry run; a request with it creates exactly that.
    """

    topic_id: str
    pending_brokers: tuple[int, ...]
    trace_id: str = ""
    assignment: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Change of one key. `before`, `after`: effective values; empty: no value."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class AlteredConfig:
    """Result of a configuration change.

    - `changes`: empty if all values were already as requested.
    - `revision`: the current revision of the topic.
    """

    changes: tuple[ConfigChange, ...]
    revision: int
    pending_brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResizedTopic:
    """Result of an addition or removal of partitions, or of the plan to delete a topic.

    - `partitions`: the number of partitions that were added or removed, or in a dry run would be.
    - `assignment`: the new replicas, from a dry run of an addition.
    - `brokers`: the brokers that hold the partitions to delete, from a dry run.
    """

    partitions: int
    revision: int
    pending_brokers: tuple[int, ...]
    assignment: tuple[tuple[int, ...], ...] = ()
    brokers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """Result of one partition's recovery. `error`: None if it has a leader; REQUEST_TIMED_OUT if it
    has none yet, while the consent remains in effect."""

    partition: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class RecoveryChoice:
    """The replica to elect as leader. `expected_revision`: from `Recovery`; 0: not checked."""

    partition: int
    broker_id: int
    expected_revision: int = 0


@dataclass(frozen=True, slots=True)
class Survivor:
    """The log of one replica of a partition without a leader.

    - `described`: the fields below describe the log; if false, `problem` says why they do not.
    - `last_epoch`: leader epoch of the last batch; -1: the log is empty.
    - `whole`: the replica is intact.
    - `lost_records`: records that are lost if this replica becomes leader; None: not known.
    - `high_watermark`: None: the broker did not report it.
    """

    broker_id: int
    described: bool
    problem: str
    last_epoch: int
    log_start_offset: int
    log_end_offset: int
    whole: bool
    lost_records: int | None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A partition without a leader, and the logs of its replicas."""

    topic: str
    topic_id: str
    partition: int
    revision: int
    last_known: tuple[int, ...]
    waits_for: str
    survivors: tuple[Survivor, ...]


@checks_arguments(choices=several(instance(RecoveryChoice)))
class TopicRequests:
    _controllers: ControllerCalls

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
                raise no_answer("no broker told how many brokers there are", sent=False) from None
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
            lambda api, try_ms: api.create_topic(request, try_ms), timeout_ms
        )
        error, trace_id = answered.error, answered.trace_id
        if error is not None:
            if answered.in_doubt and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                found = await self.describe_topic(topic)
                asked = partitions, replication_factor
                if (found.partition_count, found.replication_factor) == asked:
                    return CreatedTopic(found.topic_id, (), trace_id)
            raise error
        return CreatedTopic(
            answer.topic_id,
            tuple(answer.pending_brokers),
            trace_id,
            _assignment_from_wire(answer.assignment),
        )

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
            lambda api, try_ms: api.delete_topic(request, try_ms), timeout_ms
        )
        error = answered.error
        if error is not None:
            if answered.in_doubt and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return ()
            raise error
        return tuple(answer.pending_brokers)

    async def plan_deletion(self, topic: str, *, expected_revision: int = 0) -> ResizedTopic:
        """Returns what a deletion would delete."""
        request = built(
            pb.DeleteTopicRequest, topic=topic, dry_run=True, expected_revision=expected_revision
        )
        answer = await self._controllers.ask(lambda api, try_ms: api.delete_topic(request, try_ms))
        return ResizedTopic(answer.partitions, 0, (), brokers=tuple(answer.brokers))

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
        answer = await self._controllers.ask(
            lambda api, try_ms: api.alter_topic_config(request, try_ms), timeout_ms
        )
        changes = tuple(ConfigChange(c.key, c.before, c.after) for c in answer.changes)
        return AlteredConfig(changes, answer.revision, tuple(answer.pending_brokers))

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
        answer = await self._controllers.ask(
            lambda api, try_ms: api.add_partitions(request, try_ms), timeout_ms
        )
        pending = tuple(answer.pending_brokers)
        placed = _assignment_from_wire(answer.assignment)
        return ResizedTopic(answer.added, answer.revision, pending, placed)

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
        answer = await self._controllers.ask(
            lambda api, try_ms: api.remove_partitions(request, try_ms), timeout_ms
        )
        pending, brokers = tuple(answer.pending_brokers), tuple(answer.brokers)
        return ResizedTopic(answer.removed, answer.revision, pending, brokers=brokers)

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
            choices=_choices_to_wire(choices),
        )
        answer = await self._controllers.ask(
            lambda api, try_ms: api.recover_partitions(request, try_ms), timeout_ms
        )
        return [
            RecoveredPartition(
                result.partition,
                error_from_wire(result.error) if result.HasField("error") else None,
            )
            for result in answer.partitions
        ]

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
            answer = await self._looked(
                built(
                    pb.DescribeRecoveryRequest,
                    topic=topic,
                    partitions=partitions,
                    timeout_ms=timeout_ms,
                    page_size=PAGE_SIZE,
                    page_token=token,
                    choices=_choices_to_wire(choices),
                ),
                timeout_ms,
            )
            found += [_recovery_from_wire(details) for details in answer.partitions]
            token = answer.next_page_token
            if not token:
                break
        return found

    async def _looked(
        self, request: pb.DescribeRecoveryRequest, timeout_ms: int
    ) -> pb.DescribeRecoveryResponse:
        return await self._controllers.ask(
            lambda api, try_ms: api.describe_recovery(request, try_ms), timeout_ms
        )


def _choices_to_wire(choices: Sequence[RecoveryChoice]) -> list[pb.RecoveryChoice]:
    return [
        built(
            pb.RecoveryChoice,
            partition=choice.partition,
            broker_id=choice.broker_id,
            expected_revision=choice.expected_revision,
        )
        for choice in choices
    ]


def _recovery_from_wire(wire: pb.RecoveryDetails) -> Recovery:
    survivors = tuple(
        Survivor(
            replica.broker_id,
            replica.described,
            replica.problem,
            replica.last_epoch,
            replica.log_start_offset,
            replica.log_end_offset,
            replica.whole,
            replica.lost_records if replica.HasField("lost_records") else None,
            replica.high_watermark if replica.HasField("high_watermark") else None,
        )
        for replica in wire.replicas
    )
    return Recovery(
        wire.topic,
        wire.topic_id,
        wire.partition,
        wire.revision,
        tuple(wire.last_known),
        wire.waits_for,
        survivors,
    )


def _assignment_to_wire(assignment: Assignment) -> list[pb.ReplicaAssignment]:
    return [built(pb.ReplicaAssignment, replicas=replicas) for replicas in assignment]


def _assignment_from_wire(
    wire: Sequence[pb.ReplicaAssignment],
) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(partition.replicas) for partition in wire)
