"""What a broker reports about itself while it starts."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.inspection.state_reports import (
    OPENS_LOGS,
    STARTED,
    TAKES_STATES,
    WAITS_FOR_STORE,
    BrokerState,
    StateRequest,
)
from tidelog_broker.damage.start_damage import StartDamage
from tidelog_broker.incarnation import EXIT_FAULT, run_incarnation
from tidelog_broker.membership.directory_binding import DirectoryBinding
from tidelog_broker.storage.data_directory import DataDirectoryError
from tidelog_runtime.metadata.broker_directories import (
    RejectedStart,
    RejectionCause,
    decode_rejected_start,
    encode_rejected_start,
)
from tidelog_runtime.metadata.store import StoreRolledBackError
from unit.broker.broker_parts import KEYS, address_of, until, until_idle
from unit.broker.broker_processes import Cluster, Process, leading_alone


class RecordingEdge:
    """`serving` is the answer of the health service, or None if no server listens."""

    def __init__(self) -> None:
        self.serving: bool | None = None

    async def start(self) -> str:
        self.serving = False
        return address_of(1)

    def set_serving(self, serving: bool) -> None:
        self.serving = serving

    async def stop(self) -> None:
        self.serving = None


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def described_by(process: Process) -> BrokerState:
    state = await process.broker.inspection.describe(StateRequest())
    assert state.broker is not None
    return state.broker


async def test_a_broker_that_waits_for_the_store_listens_and_reports_it(cluster: Cluster) -> None:
    process, edge, stop = Process(cluster, 1), RecordingEdge(), asyncio.Event()
    process.store.disconnect()
    left: list[tuple[bool, bool | None]] = []

    def on_left() -> None:
        left.append((process.broker.stopped.is_set(), edge.serving))

    living = asyncio.create_task(run_incarnation(process.broker, edge, stop, on_left))
    await until(lambda: process.broker.store.health.unreachable_ms >= 0)
    assert edge.serving is False
    state = await process.broker.inspection.describe(StateRequest())
    assert state.address == address_of(1)
    assert (await described_by(process)).start_phase == WAITS_FOR_STORE
    process.store.reconnect()
    await until(lambda: process.broker.start.phase == TAKES_STATES)
    assert not process.broker.start.rejection_reason(1)
    stop.set()
    assert await living == 0
    assert edge.serving is None
    assert left == [(True, False)], "once it had left, and before the edge was stopped"


async def test_while_logs_are_opened_their_number_is_reported_and_none_is_inspected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await leading_alone(cluster)).stop()
    process, progress = Process(cluster, 1), list[tuple[str, int, int]]()
    open_all = process.broker._logs.open_all

    def watched(on_progress: Callable[[int, int], None], *, intact: bool) -> object:
        def record_progress(done: int, total: int) -> None:
            on_progress(done, total)
            progress.append((process.broker.start.phase, done, total))

        return open_all(record_progress, intact=intact)

    monkeypatch.setattr(process.broker._logs, "open_all", watched)
    await process.broker.prepare()
    assert progress == [(OPENS_LOGS, 0, 1)]
    process.broker.start.enter(OPENS_LOGS)
    assert (await described_by(process)).replicas == []
    await process.stop()


@pytest.mark.rule("registrations-are-only-created")
async def test_a_crashed_incarnation_is_unregistered_before_its_logs_are_opened(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening may take longer than its lease, and until then no other replica would be elected."""
    previous = await leading_alone(cluster)
    previous.store.disconnect()
    await previous.stop()
    assert cluster.data.get(KEYS.broker(1)) is not None
    process, registered = Process(cluster, 1), list[bool]()
    open_all = process.broker._logs.open_all

    def watched(on_progress: Callable[[int, int], None], *, intact: bool) -> object:
        registered.append(cluster.data.get(KEYS.broker(1)) is not None)
        return open_all(on_progress, intact=intact)

    monkeypatch.setattr(process.broker._logs, "open_all", watched)
    await process.broker.prepare()
    assert registered == [False]
    await process.stop()


async def test_a_store_that_falls_back_while_a_broker_starts_is_rejected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fallen_back(*_: object) -> None:
        raise StoreRolledBackError("it was at 27 before")

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryBinding, "read", fallen_back)
        with pytest.raises(DataDirectoryError, match="it was at 27 before"):
            await Process(cluster, 1).broker.prepare()
    process = Process(cluster, 1)
    await process.broker.prepare()
    monkeypatch.setattr(StartDamage, "resign", fallen_back)
    with pytest.raises(DataDirectoryError, match="it was at 27 before"):
        await process.broker.join("10.0.0.1:7500")
    await process.stop()
    monkeypatch.undo()
    process = Process(cluster, 1)
    await process.broker.prepare()
    monkeypatch.setattr(process.broker.store, "snapshot", fallen_back)
    with pytest.raises(DataDirectoryError, match="it was at 27 before"):
        await process.broker.join("10.0.0.1:7500")
    await process.stop()


def rejection_of(cluster: Cluster, broker_id: int) -> RejectedStart | None:
    found = cluster.data.get(KEYS.rejected_start(broker_id))
    return None if found is None else decode_rejected_start(found.value)


@pytest.mark.parametrize(
    ("cause", "stays"),
    [(RejectionCause.ADDRESS, False), (RejectionCause.BROKER_ID_IN_USE, True)],
)
async def test_a_start_that_gets_further_replaces_the_reported_rejection(
    cluster: Cluster, cause: RejectionCause, stays: bool
) -> None:
    """Its process may end before it can report anything, and a second process may still try."""
    await (await leading_alone(cluster)).stop()
    before = RejectedStart(cause, "as it was", 1, directory_id="another")
    cluster.put(KEYS.rejected_start(1), encode_rejected_start(before))
    process = Process(cluster, 1)
    await process.broker.prepare()
    now = rejection_of(cluster, 1)
    assert now is not None
    assert (now == before) == stays
    assert (now.cause is RejectionCause.UNFINISHED) != stays
    await process.broker.join(address_of(1))
    await until(lambda: cluster.data.get(KEYS.broker(1)) is not None)
    assert (rejection_of(cluster, 1) is not None) == stays
    await process.stop()


async def test_a_first_start_reports_nothing_before_it_ends(cluster: Cluster) -> None:
    process = Process(cluster, 1)
    await process.broker.prepare()
    assert rejection_of(cluster, 1) is None
    await process.stop()


async def test_a_fault_during_the_start_is_reported(cluster: Cluster) -> None:
    process, edge = Process(cluster, 1), RecordingEdge()
    living = asyncio.create_task(run_incarnation(process.broker, edge, asyncio.Event()))
    await until(lambda: process.broker.start.phase == TAKES_STATES)
    process.broker.faults.reason = "task log-syncer failed: MemoryError"
    process.broker.faults.found.set()
    assert await living == EXIT_FAULT
    reported = rejection_of(cluster, 1)
    assert reported is not None
    assert (reported.cause, reported.reason) == (
        RejectionCause.FAULT,
        "task log-syncer failed: MemoryError",
    )


async def test_a_broker_without_its_metadata_rejects_requests(cluster: Cluster) -> None:
    process = Process(cluster, 1)
    await process.broker.prepare()
    process.store.disconnect()
    joining = asyncio.create_task(process.broker.join(address_of(1)))
    await until_idle()
    assert "it reads the cluster's metadata" in process.broker.start.rejection_reason(1)
    process.store.reconnect()
    await joining
    assert not process.broker.start.rejection_reason(1)
    await process.stop()


async def test_with_its_full_state_a_broker_has_started(cluster: Cluster) -> None:
    process = await Process(cluster, 1).start()
    assert (await described_by(process)).start_phase == TAKES_STATES
    wanted, revision = cluster.elect(process)
    await cluster.command(process, wanted, revision)
    assert (process.broker.start.done, process.broker.start.total) == (1, 1)
    broker = await described_by(process)
    assert (broker.start_phase, broker.start_total, broker.is_starting) == (STARTED, 0, False)
    await process.stop()
