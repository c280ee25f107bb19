"""/v1/brokers: describes brokers, sets maintenance, and adds and removes brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query, Response

from tidelog.admin_messages import RestartFinding as Finding
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.replica_reports import known
from tidelog.inspection.state_reports import ServiceState, StateRequest
from tidelog_admin_api.accepted import ACCEPTED_RESPONSES, accepted_answer
from tidelog_admin_api.bodies.broker_bodies import (
    BrokerPage,
    BrokerProcess,
    BrokersRequest,
    BrokerWithProcess,
    Maintenance,
    MaintenanceOfSeveral,
    MaintenanceOfSeveralRequest,
    MaintenanceRequest,
    RestartCheckPage,
)
from tidelog_admin_api.bodies.operation_bodies import BegunOperation
from tidelog_admin_api.dependencies import AdminDep, StatesDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import Key, PagingQuery, page_of
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS, BrokerId, DryRun, TimeoutMs
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS, multi_status
from tidelog_admin_api.resources.leaders import leader_results

# How long a broker may take to report its state.
REPORT_TIMEOUT_MS = 1_000
_EFFECTS = ("unavailable", "under_min_isr", "last_replica", "leader_moves")

router = JsonRouter(prefix="/v1/brokers", tags=["brokers"])

BrokerStatus = Literal["running", "stopping", "gone"]


@router.get("", responses=READ_PROBLEMS)
async def list_brokers(
    admin: AdminDep,
    paging: PagingQuery,
    status: Annotated[BrokerStatus | None, Query(description="only brokers of this status")] = None,
) -> BrokerPage:
    """Lists brokers by id.

    The list has brokers that are registered, hold replicas, are in maintenance or were removed.
    """
    brokers = await admin.describe_brokers()
    selected = [broker for broker in brokers if status in (None, broker.status)]
    page, token = page_of("brokers", selected, lambda broker: (broker.broker_id,), paging)
    return BrokerPage.of_items(page, token)


@router.get("/{broker_id}", responses=READ_PROBLEMS)
async def describe_broker(
    broker_id: BrokerId, admin: AdminDep, states: StatesDep
) -> BrokerWithProcess:
    """Describes the load of a broker, from the controller, and its process, from the broker."""
    found = await admin.describe_brokers([broker_id])
    if not found:
        raise TidelogError(ErrorCode.UNKNOWN_BROKER, f"broker {broker_id} is not known")
    reported = await states.ask(StateRequest(services_only=True), REPORT_TIMEOUT_MS)
    process = next((s for s in reported.states if (s.role, s.id) == ("broker", broker_id)), None)
    silent = [s for s in reported.silent if (s.role, s.id) == ("broker", broker_id)]
    problem = "; ".join(f"{service} {service.problem}" for service in silent)
    return BrokerWithProcess.of(
        found[0],
        process=_process(process) if process else None,
        problem="" if process else problem or "no address of the broker is known",
    )


def _process(reported: ServiceState) -> BrokerProcess:
    broker = reported.broker
    assert broker is not None
    return BrokerProcess.of(
        broker,
        version=reported.version,
        started_at_ms=reported.started_at_ms,
        starting=broker.is_starting,
        disk_free_bytes=known(broker.disk_free_bytes),
        move_bytes_per_second=known(broker.move_bytes_per_second),
    )


@router.get("/{broker_id}/restart-check", responses=READ_PROBLEMS)
async def check_restart(
    broker_id: BrokerId, admin: AdminDep, paging: PagingQuery
) -> RestartCheckPage:
    """Checks which partitions a stop of the broker would affect, and how."""
    check = await admin.check_restart(broker_id)
    page, token = page_of("restart findings", check.findings, _by_effect, paging)
    return RestartCheckPage.of(check, items=page, next_page_token=token)


def _by_effect(finding: Finding) -> Key:
    known = finding.effect in _EFFECTS
    rank = _EFFECTS.index(finding.effect) if known else len(_EFFECTS)
    return rank, finding.topic, finding.partition


_NOT_ALL = "Some partitions have no other leader yet; the `error` of each says why."


@router.put(
    "/{broker_id}/maintenance", responses=CHANGE_PROBLEMS | multi_status(Maintenance, _NOT_ALL)
)
async def set_maintenance(
    broker_id: BrokerId,
    body: MaintenanceRequest,
    admin: AdminDep,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> Maintenance:
    """Starts or ends maintenance of a broker.

    In maintenance the broker keeps its replicas and leads only partitions that no other replica
    can lead. The request waits until leadership is transferred or the time is up.
    """
    changes, kept = await admin.set_maintenance(
        [broker_id], timeout_ms, maintenance=body.maintenance, dry_run=dry_run
    )
    return Maintenance(
        broker_id=broker_id,
        maintenance=body.maintenance,
        leaders=leader_results(answer, changes).items,
        leaders_kept=kept,
    )


@router.put(
    "/maintenance", responses=CHANGE_PROBLEMS | multi_status(MaintenanceOfSeveral, _NOT_ALL)
)
async def set_maintenance_of_several(
    body: MaintenanceOfSeveralRequest,
    admin: AdminDep,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> MaintenanceOfSeveral:
    """Starts or ends maintenance of several brokers.

    None of them takes over leadership from another.
    """
    broker_ids = _distinct(body.broker_ids)
    changes, kept = await admin.set_maintenance(
        broker_ids, timeout_ms, maintenance=body.maintenance, dry_run=dry_run
    )
    return MaintenanceOfSeveral(
        broker_ids=broker_ids,
        maintenance=body.maintenance,
        leaders=leader_results(answer, changes).items,
        leaders_kept=kept,
    )


@router.post("/add", responses=ACCEPTED_RESPONSES)
async def add_brokers(
    body: BrokersRequest, admin: AdminDep, response: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Moves a share of replicas and leaders to registered brokers.

    The plan balances brokers with the fewest moves. A dry run returns it.
    """
    arguments = body.arguments(dry_run=dry_run)
    accepted = await admin.add_brokers(_distinct(body.broker_ids), **arguments)
    return accepted_answer(accepted, response)


@router.post("/remove", responses=ACCEPTED_RESPONSES)
async def remove_brokers(
    body: BrokersRequest, admin: AdminDep, response: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Moves all replicas off brokers, also dead ones, and places no new replicas on them.

    When the operation is done, the brokers can be stopped permanently. The request is rejected
    if the other brokers are too few for a topic's replication factor.
    """
    arguments = body.arguments(dry_run=dry_run)
    accepted = await admin.remove_brokers(_distinct(body.broker_ids), **arguments)
    return accepted_answer(accepted, response)


def _distinct(broker_ids: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(broker_ids))
