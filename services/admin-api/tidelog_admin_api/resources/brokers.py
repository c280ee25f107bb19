"""/v1/brokers: the load of brokers; add, drain and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from tidelog.admin_messages import LeaderChange
from tidelog.admin_messages import RestartFinding as Finding
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.model import NOT_KNOWN, ServiceState, StateRequest
from tidelog_admin_api.accepted import ACCEPTED_RESPONSES, accepted_answer
from tidelog_admin_api.bodies.base import AnswerBody
from tidelog_admin_api.bodies.broker_bodies import (
    Broker,
    BrokerPage,
    BrokerProcess,
    BrokersRequest,
    BrokerWithProcess,
    Maintenance,
    MaintenanceOfSeveral,
    MaintenanceOfSeveralRequest,
    MaintenanceRequest,
    RestartCheckPage,
    RestartFinding,
)
from tidelog_admin_api.bodies.leader_bodies import LeaderResult, leader_results
from tidelog_admin_api.bodies.operation_bodies import BegunOperation
from tidelog_admin_api.dependencies import AskAdmin, AskStates
from tidelog_admin_api.paging import Key, PagingQuery, page_of
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS, BrokerId, DryRun, TimeoutMs
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

# How long a broker may take to report its state.
LOOK_TIMEOUT_MS = 1_000
_EFFECTS = ("unavailable", "under_min_isr", "last_replica", "leader_moves")

router = APIRouter(prefix="/v1/brokers", tags=["brokers"])

BrokerStatus = Literal["running", "stopping", "gone"]


@router.get("", responses=READ_PROBLEMS)
async def list_brokers(
    admin: AskAdmin,
    paging: PagingQuery,
    status: Annotated[BrokerStatus | None, Query(description="only those")] = None,
) -> BrokerPage:
    """Lists brokers by id.

    These are brokers that are registered, hold replicas, are in maintenance or were removed.
    """
    brokers = await admin.describe_brokers()
    selected = [broker for broker in brokers if status in (None, broker.status)]
    page, token = page_of("brokers", selected, lambda broker: (broker.broker_id,), paging)
    return BrokerPage(
        items=[Broker.model_validate(broker) for broker in page], next_page_token=token
    )


@router.get("/{broker_id}", responses=READ_PROBLEMS)
async def describe_broker(
    broker_id: BrokerId, admin: AskAdmin, states: AskStates
) -> BrokerWithProcess:
    """Describes a broker: its load, as the controller knows it, and its process, as it reports."""
    found = await admin.describe_brokers([broker_id])
    if not found:
        raise TidelogError(ErrorCode.UNKNOWN_BROKER, f"nobody knows a broker {broker_id}")
    reported = await states.ask(StateRequest(services_only=True), LOOK_TIMEOUT_MS)
    process = next((s for s in reported.states if (s.role, s.id) == ("broker", broker_id)), None)
    silent = [s for s in reported.silent if (s.role, s.id) == ("broker", broker_id)]
    problem = "; ".join(f"{service} {service.problem}" for service in silent)
    return BrokerWithProcess(
        **Broker.model_validate(found[0]).model_dump(),
        process=_process(process) if process else None,
        problem="" if process else problem or "nobody knows an address at which it answers",
    )


def _process(reported: ServiceState) -> BrokerProcess:
    broker = reported.broker
    assert broker is not None
    return BrokerProcess(
        version=reported.version,
        started_at_ms=reported.started_at_ms,
        state=broker.state,
        starting=broker.is_starting,
        start_phase=broker.start_phase,
        disk_free_bytes=_known(broker.disk_free_bytes),
        move_bytes_per_second=_known(broker.move_bytes_per_second),
    )


def _known(figure: int) -> int | None:
    return None if figure == NOT_KNOWN else figure


@router.get("/{broker_id}/restart-check", responses=READ_PROBLEMS)
async def check_restart(
    broker_id: BrokerId, admin: AskAdmin, paging: PagingQuery
) -> RestartCheckPage:
    """Reports what stopping the broker now would make unavailable or bring below min ISR."""
    check = await admin.check_restart(broker_id)
    page, token = page_of("restart findings", check.findings, _by_effect, paging)
    return RestartCheckPage(
        safe=check.safe,
        unavailable=check.unavailable,
        under_min_isr=check.under_min_isr,
        last_replica=check.last_replica,
        leader_moves=check.leader_moves,
        items=[RestartFinding.model_validate(finding) for finding in page],
        next_page_token=token,
    )


def _by_effect(finding: Finding) -> Key:
    known = finding.effect in _EFFECTS
    rank = _EFFECTS.index(finding.effect) if known else len(_EFFECTS)
    return rank, finding.topic, finding.partition


def _not_all(model: type[AnswerBody]) -> dict[int | str, dict[str, Any]]:
    return {
        HTTPStatus.MULTI_STATUS.value: {
            "model": model,
            "description": "Some partitions have not got their other leader yet; each says why.",
        }
    }


@router.put("/{broker_id}/maintenance", responses=CHANGE_PROBLEMS | _not_all(Maintenance))
async def set_maintenance(
    broker_id: BrokerId,
    body: MaintenanceRequest,
    admin: AskAdmin,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> Maintenance:
    """Starts or ends maintenance of a broker.

    In maintenance it keeps its replicas and leads only partitions that no other replica can
    lead. Answers when its leaders have moved or the time is up.
    """
    changes, kept = await admin.set_maintenance(
        [broker_id], timeout_ms, maintenance=body.maintenance, dry_run=dry_run
    )
    return Maintenance(
        broker_id=broker_id,
        maintenance=body.maintenance,
        leaders=_leaders(changes, answer),
        leaders_kept=kept,
    )


@router.put("/maintenance", responses=CHANGE_PROBLEMS | _not_all(MaintenanceOfSeveral))
async def set_maintenance_of_several(
    body: MaintenanceOfSeveralRequest,
    admin: AskAdmin,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> MaintenanceOfSeveral:
    """Starts or ends maintenance of several brokers; none takes over leaders of the others."""
    broker_ids = _distinct(body.broker_ids)
    changes, kept = await admin.set_maintenance(
        broker_ids, timeout_ms, maintenance=body.maintenance, dry_run=dry_run
    )
    return MaintenanceOfSeveral(
        broker_ids=broker_ids,
        maintenance=body.maintenance,
        leaders=_leaders(changes, answer),
        leaders_kept=kept,
    )


def _leaders(changes: list[LeaderChange], answer: Response) -> list[LeaderResult]:
    results = leader_results(changes)
    if results.has_failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return results.items


@router.post("/add", responses=ACCEPTED_RESPONSES)
async def add_brokers(
    body: BrokersRequest, admin: AskAdmin, response: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Gives registered brokers their share of replicas and leaders.

    The plan has the fewest moves that balance them; a dry run shows it.
    """
    begun = await admin.add_brokers(_distinct(body.broker_ids), **body.arguments(dry_run=dry_run))
    return accepted_answer(begun, response)


@router.post("/remove", responses=ACCEPTED_RESPONSES)
async def remove_brokers(
    body: BrokersRequest, admin: AskAdmin, response: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Moves all replicas off brokers, dead ones too, and places no new replicas there.

    When the operation is done they may be stopped for good. It is rejected if the other brokers
    could not keep a topic's replication factor.
    """
    begun = await admin.remove_brokers(
        _distinct(body.broker_ids), **body.arguments(dry_run=dry_run)
    )
    return accepted_answer(begun, response)


def _distinct(broker_ids: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(broker_ids))
