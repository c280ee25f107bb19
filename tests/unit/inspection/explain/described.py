"""A hand-made description of a healthy cluster with three brokers and one active controller, and
methods that break it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.caller_limits import LimitedClient
from tidelog.inspection.controller_reports import (
    BrokerConnection,
    LeaseEnds,
    ServiceCrashes,
    WaitingController,
)
from tidelog.inspection.explain import Listening, Observation, SilentService, explain
from tidelog.inspection.explain.observation import ReadClock, SilentGateway
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.resource_pressures import BrokerPressure, ControllerPressure
from tidelog.inspection.state_reports import (
    BrokerBacklog,
    BrokerState,
    ControllerState,
    Departure,
    Finding,
    FollowerProgress,
    FollowerState,
    HeardBroker,
    InSyncMember,
    LeaderState,
    MissingController,
    PartitionKeyState,
    RegisteredBroker,
    RejectedStart,
    ReplicaState,
    Scope,
    ServiceState,
    StandingOperation,
    StoreHealth,
    WaitingDeletion,
)
from tidelog.model import TopicPartition

NOW_MS = 1_700_000_000_000
WELL = StoreHealth(last_latency_ms=2, max_latency_ms=5)


@dataclass
class DescribedCluster:
    """Incarnations are 10 + broker id. `tells_all_keys`: as after a request for a topic;
    otherwise the controller omits healthy partitions."""

    brokers: dict[int, BrokerState] = field(default_factory=dict)
    stores: dict[str, StoreHealth] = field(default_factory=dict)
    limited_clients: dict[int, list[LimitedClient]] = field(default_factory=dict)
    registered: dict[int, RegisteredBroker] = field(default_factory=dict)
    silent: list[SilentService] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    started_at_ms: dict[int, int] = field(default_factory=dict)
    versions: dict[int, str] = field(default_factory=dict)
    feature_level: int = 1
    raisable_level: int = 1
    pressures: list[BrokerPressure] = field(default_factory=list)
    controller_pressures: list[ControllerPressure] = field(default_factory=list)
    missing_controllers: list[MissingController] = field(default_factory=list)
    waiting_controllers: list[WaitingController] = field(default_factory=list)
    in_maintenance: list[int] = field(default_factory=list)
    gateways: list[AnnouncedGateway] = field(default_factory=list)
    lease_ends: list[LeaseEnds] = field(default_factory=list)
    crashes: list[ServiceCrashes] = field(default_factory=list)
    connections: list[BrokerConnection] = field(default_factory=list)
    silent_gateways: list[SilentGateway] = field(default_factory=list)
    clocks: list[ReadClock] = field(default_factory=list)
    rejected_starts: list[RejectedStart] = field(default_factory=list)
    backlogs: list[BrokerBacklog] = field(default_factory=list)
    deletions: list[WaitingDeletion] = field(default_factory=list)
    operations: list[StandingOperation] = field(default_factory=list)
    keys: dict[TopicPartition, PartitionKeyState] = field(default_factory=dict)
    replicas: dict[tuple[TopicPartition, int], ReplicaState] = field(default_factory=dict)
    brokers_know_departures: bool = False
    controller_answers: bool = True
    controller_active: bool = True
    metadata: list[PartitionKeyState] = field(default_factory=list)
    earlier: list[ServiceState] = field(default_factory=list)

    def __post_init__(self) -> None:
        for broker_id in (1, 2, 3):
            self.brokers[broker_id] = BrokerState(
                10 + broker_id, "running", has_full_state=True, controller_epoch=4
            )
            self.registered[broker_id] = RegisteredBroker(
                broker_id, 10 + broker_id, address(broker_id), "running", "", 1, 1
            )

    def partition(self, name: str, replicas: tuple[int, ...] = (1, 2, 3), **differs: Any) -> None:
        """Add "sea/0": led by the first of its replicas in epoch 5, all in sync at offset 100.
        `differs`: fields of its key."""
        topic, _, partition = name.rpartition("/")
        isr = differs.pop("isr", replicas)
        key = PartitionKeyState(
            topic,
            f"id-{topic}",
            int(partition),
            replicas,
            differs.pop("leader", replicas[0]),
            5,
            tuple(InSyncMember(b, 10 + b) for b in isr),
            tuple(InSyncMember(b, 10 + b) for b in differs.pop("eligible", ())),
            min_isr=min(2, len(replicas)),
            unclean_leader_epoch=-1,
            revision=70,
        )
        key = replace(key, **differs)
        self.keys[at(name)] = key
        for broker_id in replicas:
            self.replicas[at(name), broker_id] = self._replica(key, broker_id)

    def _replica(self, key: PartitionKeyState, broker_id: int) -> ReplicaState:
        in_isr = [member.broker_id for member in key.isr]
        leads = key.leader == broker_id
        replica = ReplicaState(
            key.topic,
            key.topic_id,
            key.partition,
            "leader" if leads else "follower",
            key.leader_epoch,
            key.revision,
            log_end_offset=100,
            high_watermark=100,
        )
        if not leads:
            return replace(replica, follower=FollowerState(key.leader, last_answer_ms=10))
        followers = tuple(
            FollowerProgress(b, 10 + b, b in in_isr, 100, 0, 0, 0, 100, 100)
            for b in key.replicas
            if b != broker_id
        )
        return replace(
            replica,
            leader=LeaderState(maximal_isr=in_isr, followers=followers, min_isr=key.min_isr),
        )

    # Faults.

    def hears(self, broker_id: int, heard: HeardBroker) -> None:
        """Record messages over healthy partitions, which the answer omits."""
        broker = self.brokers[broker_id]
        self.brokers[broker_id] = replace(broker, heard=(*broker.heard, heard))

    def replica(self, name: str, broker_id: int, **differs: Any) -> None:
        key = (at(name), broker_id)
        self.replicas[key] = replace(self.replicas[key], **differs)

    def leads(self, name: str, **differs: Any) -> None:
        """Set fields of the leader's report."""
        leader = self.replicas[at(name), self.keys[at(name)].leader].leader
        assert leader is not None
        self.replica(name, self.keys[at(name)].leader, leader=replace(leader, **differs))

    def seen(self, name: str, broker_id: int, **differs: Any) -> None:
        """Set fields of the leader's state of a follower. A follower that lacks records has done
        so for long, unless `last_caught_up_ms` is given."""
        if differs.get("lag_records", 0) > 0:
            differs.setdefault("last_caught_up_ms", 9_000)
        leader = self.replicas[at(name), self.keys[at(name)].leader].leader
        assert leader is not None
        self.leads(
            name,
            followers=tuple(
                replace(f, **differs) if f.broker_id == broker_id else f for f in leader.followers
            ),
        )

    def waits_for_leader(self, name: str, broker_id: int, last_answer_ms: int) -> None:
        """A follower got its leader's last answer this long ago."""
        leader = self.keys[at(name)].leader
        self.replica(name, broker_id, follower=FollowerState(leader, last_answer_ms))

    def stalls(self, name: str, held_by: int, at_offset: int = 60, for_ms: int = 8_000) -> None:
        """Records up to 100 wait for one follower, which is at `at_offset`."""
        self.replica(name, self.keys[at(name)].leader, high_watermark=at_offset)
        self.leads(name, hw_stalled_ms=for_ms)
        self.seen(name, held_by, log_end_offset=at_offset, lag_records=100 - at_offset)

    def silence(self, broker_id: int, listening: Listening) -> None:
        del self.brokers[broker_id]
        self.silent.append(
            SilentService(
                address(broker_id), listening, "gave no answer within 2.0 s", "broker", broker_id
            )
        )

    def kill(self, broker_id: int, cause: str = "broker_crashed", ago_ms: int = 35_000) -> None:
        self.silence(broker_id, Listening.REFUSES)
        del self.registered[broker_id]
        self.departures.append(
            Departure(broker_id, 10 + broker_id, NOW_MS - ago_ms, cause, address(broker_id))
        )

    def pause(self, broker_id: int) -> None:
        self.silence(broker_id, Listening.ACCEPTS)
        self.unheard(broker_id)

    def unheard(self, broker_id: int) -> None:
        """Longer than fetches and answers prove that a broker is alive."""
        for name, key in self.keys.items():
            if key.leader == broker_id:
                for other in key.replicas:
                    if other != broker_id:
                        self.waits_for_leader(str(name), other, last_answer_ms=5_000)
            elif broker_id in key.replicas and key.leader >= 0:
                self.seen(str(name), broker_id, last_fetch_ms=5_000)

    def lose_store(self, *services: str, for_ms: int = 60_000) -> None:
        for service in services:
            self.stores[service] = StoreHealth(for_ms, "no answer from 127.0.0.1:2379", 2, 2)

    def stop_controller(self) -> None:
        """No other controller is elected; brokers read partitions from the store."""
        self.controller_answers = False
        self.metadata = list(self.keys.values())

    # Consequences.

    def observed(self, scope: Scope | None = None) -> Observation:
        states = [
            ServiceState(
                "broker",
                broker_id,
                address(broker_id),
                self.versions.get(broker_id, "0.1.0"),
                self.started_at_ms.get(broker_id, 1),
                NOW_MS,
                self.stores.get(f"broker-{broker_id}", WELL),
                limited_clients=tuple(self.limited_clients.get(broker_id, ())),
                broker=replace(
                    broker,
                    registered=tuple(self.registered.values()),
                    departures=tuple(self.departures) if self.brokers_know_departures else (),
                    rejected_starts=tuple(self.rejected_starts),
                    controller_pressures=tuple(self.controller_pressures),
                    missing_controllers=tuple(self.missing_controllers),
                    replicas=tuple(r for (_, b), r in self.replicas.items() if b == broker_id),
                    heard=(*broker.heard, *self._heard_over_replicas(broker_id)),
                ),
            )
            for broker_id, broker in self.brokers.items()
        ]
        if self.controller_answers:
            states.append(self._controller())
        return Observation(
            states,
            self.silent,
            scope or Scope(),
            self.metadata,
            earlier=self.earlier,
            earlier_ms=500,
            silent_gateways=self.silent_gateways,
            clocks=self.clocks,
        )

    def _heard_over_replicas(self, broker_id: int) -> Iterator[HeardBroker]:
        for (_, holder), replica in self.replicas.items():
            if holder != broker_id:
                continue
            for progress in replica.leader.followers if replica.leader else ():
                yield HeardBroker(progress.broker_id, last_fetch_ms=progress.last_fetch_ms)
            if replica.follower is not None:
                follower = replica.follower
                yield HeardBroker(follower.leader, last_answer_ms=follower.last_answer_ms)

    def _controller(self) -> ServiceState:
        state = ControllerState(
            active=False,
            controller_epoch=-1,
            waiting_controllers=tuple(self.waiting_controllers),
            crashes=tuple(self.crashes),
        )
        if self.controller_active:
            state = ControllerState(
                True,
                4,
                "127.0.0.1:7401",
                self.backlogs,
                self.departures,
                self.deletions,
                tuple(self.keys.values()),
                registered=tuple(self.registered.values()),
                operations=self.operations,
                missing_controllers=tuple(self.missing_controllers),
                pressures=tuple(self.pressures),
                rejected_starts=tuple(self.rejected_starts),
                in_maintenance=tuple(self.in_maintenance),
                gateways=tuple(self.gateways),
                lease_ends=tuple(self.lease_ends),
                crashes=tuple(self.crashes),
                connections=tuple(self.connections),
                controller_pressures=tuple(self.controller_pressures),
                waiting_controllers=tuple(self.waiting_controllers),
                feature_level=self.feature_level,
                raisable_level=self.raisable_level,
            )
        return ServiceState(
            "controller",
            1,
            "127.0.0.1:7401",
            "0.1.0",
            1,
            NOW_MS,
            self.stores.get("controller-1", WELL),
            controller=state,
        )

    def omit_healthy(self, name: str, *broker_ids: int) -> None:
        """These services report only unhealthy partitions, and omit this one."""
        for broker_id in broker_ids:
            del self.replicas[at(name), broker_id]

    def rejects_fetches(
        self, name: str, broker_id: int, problem: str, for_ms: int = 13_000
    ) -> None:
        """The leader answers the fetches of a follower with an error."""
        leader = self.keys[at(name)].leader
        follower = FollowerState(leader, 20, problem, for_ms, answered=True)
        self.replica(name, broker_id, follower=follower)

    def explain(
        self, topic: str = "", partition: int | None = None, broker: int | None = None
    ) -> list[Finding]:
        return list(explain(self.observed(Scope(topic, partition, broker))))


def at(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("/")
    return TopicPartition(topic, int(partition))


def address(broker_id: int) -> str:
    return f"127.0.0.1:750{broker_id}"


def found(findings: list[Finding], cause: str) -> Finding:
    """The single finding with that cause."""
    [finding] = [f for f in findings if f.cause == cause]
    return finding


def causes_of(findings: list[Finding]) -> list[str]:
    return [finding.cause for finding in findings]


def text_of(finding: Finding) -> str:
    return "\n".join((finding.summary, *finding.evidence, finding.next_step))
