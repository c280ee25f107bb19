"""A complete controller: stands for election, is active for a term, and stands again."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.gateway_reports import AnnouncedGateway, GatewayAnnouncement
from tidelog.inspection.state_reports import (
    ControllerState,
    ServiceState,
    StateRequest,
)
from tidelog.memory_shortage import described, is_memory_shortage
from tidelog.model import NO_EPOCH
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog.version import installed_version
from tidelog_controller.shell.controller_election import ControllerElection, Leadership
from tidelog_controller.shell.controller_registration import ControllerRegistration
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.shell.event_loop import Environment, EventLoop
from tidelog_controller.shell.file_exhaustion import FileExhaustion
from tidelog_controller.shell.gateway_roster import GatewayRoster
from tidelog_controller.shell.lease_end import end_lease
from tidelog_controller.shell.service_directory import ServiceDirectory
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.metadata.cluster_id import UnsupportedLevelError, ensure_cluster
from tidelog_runtime.metadata.schema import ControllerEntry, ControllerProcess
from tidelog_runtime.metadata.store import (
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from tidelog_runtime.pressure.records import Pressure
from tidelog_runtime.telemetry.recent_elections import LeaseEndCounts

STORE_RETRY_SECONDS = 0.5
# After an internal fault a controller gives the others this long to take over.
FAULT_PAUSE_SECONDS = 5.0
# The same, after it stepped down because it can open no more files.
HAND_OVER_PAUSE_SECONDS = 5.0
REVOKE_TIMEOUT_SECONDS = 2.0


class ControllerService:
    def __init__(
        self,
        environment: Environment,
        entry: ControllerEntry,
        *,
        lease_ttl_seconds: int,
        host: str = "",
    ) -> None:
        """`host`: the name of its machine or container; empty: unknown."""
        self._environment = environment
        self._log = environment.log
        self._state_changes = environment.state_changes
        self._entry = entry
        self._started_at_ms = environment.clock.wall_ms()
        self._roster = ControllerRoster(environment.keys, environment.state_changes)
        self._gateways = GatewayRoster(environment.clock)
        self._lease_ends = LeaseEndCounts(environment.clock)
        environment.state_changes.add_sink(self._lease_ends.take)
        self._election = ControllerElection(
            environment.store,
            environment.keys,
            entry,
            lease_ttl_seconds,
            self._roster,
            environment.levels,
        )
        self._registration = ControllerRegistration(
            environment.store,
            environment.keys,
            entry.controller_id,
            ControllerProcess(
                entry.address,
                self._started_at_ms,
                entry.external_address,
                host,
                installed_version(),
                environment.levels,
            ),
            lease_ttl_seconds,
            environment.clock,
            environment.log,
        )
        # The resource shortages of this process; and the callback that frees reserved memory, so
        # that a process without memory can end.
        self.own_pressures: Callable[[], Sequence[Pressure]] = tuple
        self.on_memory_shortage: Callable[[], None] = lambda: None
        # Set once the store is known to hold a cluster that this version may write to.
        self._may_write = asyncio.Event()
        self._term: EventLoop | None = None

    @property
    def may_write(self) -> bool:
        """Whether this controller may write to the store.

        The store has to be known as that of its cluster, and no other process may hold its id.
        """
        return self._may_write.is_set() and self._registration.has_id.is_set()

    @property
    def term(self) -> EventLoop | None:
        """None: this controller is a standby."""
        return self._term

    async def run(self) -> None:
        """Runs until cancelled, then revokes the lease: another controller takes over at once.

        Raises `StoreRolledBackError` and `UnsupportedLevelError`: an administrator has to act
        before anything is written. Also raises an error for which `is_memory_shortage` is true,
        after it was recorded in the store.
        """
        probing = asyncio.create_task(self._environment.store.probe())
        registering = asyncio.create_task(self._keep_registered())
        try:
            await self._campaign_and_lead()
        except Exception as error:
            if is_memory_shortage(error):
                self.on_memory_shortage()
                self._registration.fault = f"it ended for lack of memory: {described(error)}"
            raise
        finally:
            probing.cancel()
            registering.cancel()
            await asyncio.gather(registering, return_exceptions=True)

    async def _keep_registered(self) -> None:
        await self._may_write.wait()
        while True:
            try:
                await self._registration.run()
                break
            except Exception as error:
                if not is_memory_shortage(error):
                    remedy = "start it again: it is not listed"
                    self._log.exception("controller_fault", remedy=remedy)
                    break
                # Another shortage ends the process; until then it has to be registered.
                await asyncio.sleep(FAULT_PAUSE_SECONDS)
        # The election does not depend on the registration.
        self._registration.has_id.set()

    async def _campaign_and_lead(self) -> None:
        environment = self._environment
        while True:
            try:
                await ensure_cluster(
                    environment.store, environment.keys, environment.rng, environment.levels
                )
                self._may_write.set()
                # Not while another process holds its id.
                await self._registration.has_id.wait()
                await self._lead(await self._election.campaign())
            except StoreUnavailableError:
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except (StoreRolledBackError, UnsupportedLevelError):
                raise
            except Exception as error:
                if is_memory_shortage(error):
                    raise
                self._log.exception(
                    "controller_fault", remedy="the controller takes part in the election again"
                )
                await asyncio.sleep(FAULT_PAUSE_SECONDS)

    async def submit(self, request: AdminRequest) -> AdminReply:
        """Returns the reply, or NOT_CONTROLLER with the address of the active controller."""
        if self._term is None:
            return AdminReply(self._not_controller())
        return await self._term.submit(request)

    def report(self, report: UnreachableLeadersReport) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""
        return self._not_controller() if self._term is None else self._term.report(report)

    def report_disk(self, report: DiskReport) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""
        return self._not_controller() if self._term is None else self._term.report_disk(report)

    def announce_gateway(self, announcement: GatewayAnnouncement) -> TidelogError | None:
        """Returns why the announcement was rejected; None: it was accepted, also by a standby."""
        return self._gateways.announce(announcement)

    def described_gateways(self) -> tuple[AnnouncedGateway, ...]:
        return self._gateways.described()

    def described_waiting(self) -> tuple[WaitingController, ...]:
        return self._roster.waiting.described()

    async def describe(self, request: StateRequest) -> ServiceState:
        clock, state_changes = self._environment.clock, self._state_changes
        error = self._term.not_found(request) if self._term is not None else None
        controller = await self._describe_term(request)
        return ServiceState(
            role="controller",
            id=self._entry.controller_id,
            address=self._entry.address,
            version=installed_version(),
            started_at_ms=self._started_at_ms,
            now_ms=clock.wall_ms(),
            store=self._environment.store.health,
            events_told=state_changes.reported,
            events_dropped=state_changes.dropped,
            controller=controller,
            error=error,
        )

    @property
    def known_services(self) -> ServiceDirectory:
        return ServiceDirectory(self._entry, self._roster, lambda: self._term)

    async def _describe_term(self, request: StateRequest) -> ControllerState:
        state = ControllerState(active=False, controller_epoch=NO_EPOCH)
        if self._term is not None:
            state = await self._term.describe(request)
        active = self._election.active
        now_ms = self._environment.clock.wall_ms()
        crashes = (*state.crashes, *self._roster.crashes(now_ms), *self._gateways.crashes())
        return dataclasses.replace(
            state,
            active_address=active.address if active else "",
            controllers=self._roster.controllers,
            missing_controllers=self._roster.missing(now_ms),
            crashes=crashes,
            gateways=self.described_gateways(),
            lease_ends=self._lease_ends.recent,
            controller_pressures=self._roster.pressures.described(
                self._entry.controller_id, self.own_pressures()
            ),
            waiting_controllers=self.described_waiting(),
        )

    async def _lead(self, leadership: Leadership) -> None:
        identity = leadership.identity
        self._state_changes.emit(
            Kind.CONTROLLER_ELECTED,
            Stage.COMPLETED,
            cause=Cause.NO_CONTROLLER,
            controller_epoch=identity.controller_epoch,
            revision=identity.key_revision,
            details={"address": self._entry.address},
        )
        self._term = EventLoop(self._environment, leadership, self._roster)
        reason, cause = "a fault of its own", Cause.NONE
        exhaustion = FileExhaustion(
            identity.controller_id,
            lambda: self.own_pressures(),
            self._roster,
            self._environment.clock,
        )
        try:
            reason = await self._term.run(exhaustion.until_due)
            if exhaustion.is_due:
                cause = Cause.NO_OPEN_FILES
        except asyncio.CancelledError:
            reason, cause = "the process was stopped", Cause.REQUESTED
            raise
        except ExceptionGroup as group:
            failure = _cause(group)
            if isinstance(failure, StoreError):
                reason, cause = str(failure), Cause.STORE_UNREACHABLE
            elif is_memory_shortage(failure):
                self.on_memory_shortage()
                reason = "the process may not use more memory"
            raise failure from group
        finally:
            self._state_changes.emit(
                Kind.CONTROLLER_STEPPED_DOWN,
                Stage.COMPLETED,
                cause=cause,
                controller_epoch=identity.controller_epoch,
                details={"reason": reason},
            )
            self._term = None
            self._election.active = None
            await end_lease(
                leadership.lease, REVOKE_TIMEOUT_SECONDS, self._log, "controller_lease_left"
            )
        if exhaustion.is_due:
            await asyncio.sleep(HAND_OVER_PAUSE_SECONDS)

    def _not_controller(self) -> TidelogError:
        active = self._election.active
        where = (
            f"the active one is controller {active.controller_id} at {active.address}"
            if active
            else "no controller is known to be active; try again in a moment"
        )
        return TidelogError(ErrorCode.NOT_CONTROLLER, f"this controller is not active; {where}")


def _cause(group: ExceptionGroup[Exception]) -> Exception:
    """Returns the error that ended the tasks of a term.

    A rolled-back store comes before all else, and a memory shortage before the faults that it
    causes.
    """
    rolled_back = group.subgroup(StoreRolledBackError)
    shortage = group.subgroup(lambda error: is_memory_shortage(error))
    first: Exception = (rolled_back or shortage or group).exceptions[0]
    return _cause(first) if isinstance(first, ExceptionGroup) else first
