"""The registered controllers, active or standby, and events about their joins and departures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.inspection.controller_reports import ServiceCrashes
from tidelog.inspection.state_reports import MissingController, RegisteredController
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.state.crash_series import CrashSeries
from tidelog_runtime.metadata.controller_records import KnownControllers, WaitingControllers
from tidelog_runtime.metadata.keys import ControllerProcessKey, Keys
from tidelog_runtime.metadata.schema import ControllerProcess, decode_controller_process
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot
from tidelog_runtime.pressure.records import ControllerPressures
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class _Known(NamedTuple):
    process: ControllerProcess
    revision: int


class ControllerRoster:
    """The controllers, as the current watch of this controller delivers them.

    A standby watches the controllers' keys, the active controller watches everything. So the roster
    is always up to date.
    """

    def __init__(self, keys: Keys, state_changes: StateChangeLog) -> None:
        self._keys = keys
        self._state_changes = state_changes
        self._known: dict[int, _Known] = {}
        # Includes those that run.
        self._past = KnownControllers(keys.known_controllers)
        self.pressures = ControllerPressures(keys.controller_pressures)
        # Processes that wait for their controller id, which another process holds.
        self.waiting = WaitingControllers(keys.waiting_controllers)
        self._loaded = False

    @property
    def controllers(self) -> tuple[RegisteredController, ...]:
        """Sorted by id."""
        return tuple(
            RegisteredController(controller_id, known.process.address, known.process.started_at_ms)
            for controller_id, known in sorted(self._known.items())
        )

    def missing(self, now_ms: int) -> tuple[MissingController, ...]:
        """Controllers that ran recently and are not registered, sorted by id."""
        return self._past.missing(self._known, now_ms)

    def crashes(self, now_ms: int) -> Iterator[ServiceCrashes]:
        """Yields controllers that crash again and again, sorted by id."""
        for controller_id, past in self._past.crashing():
            series = CrashSeries(past.crashes, past.crashing_since_ms, past.crashed_at_ms)
            if not series.is_over(now_ms):
                yield series.described("controller", controller_id, "", now_ms, past.crash_reason)

    def process(self, controller_id: int) -> ControllerProcess | None:
        known = self._known.get(controller_id)
        return known.process if known is not None else None

    @property
    def processes(self) -> Iterator[ControllerProcess]:
        return (known.process for known in self._known.values())

    def load(self, snapshot: Snapshot) -> None:
        """Replaces everything known. Controllers found when this one starts cause no event."""
        ids = {self._id_in(key): item for key, item in snapshot.items.items()}
        found = {controller_id: item for controller_id, item in ids.items() if controller_id >= 0}
        for controller_id in sorted(self._known):
            if controller_id not in found:
                self._gone(controller_id, snapshot.revision)
        for controller_id in sorted(found):
            self._take(controller_id, found[controller_id])
        self._past.clear()
        self.pressures.clear()
        self.waiting.clear()
        for key, item in snapshot.items.items():
            self._past.take(key, item)
            self.pressures.take(key, item)
            self.waiting.take(key, item)
        self._loaded = True

    def apply(self, changes: Iterable[Changed]) -> None:
        for key, value, revision in changes:
            self._past.take(key, value)
            self.pressures.take(key, value)
            self.waiting.take(key, value)
            controller_id = self._id_in(key)
            if controller_id < 0:
                continue
            if value is not None:
                self._take(controller_id, value)
            elif controller_id in self._known:
                self._gone(controller_id, revision)

    def _id_in(self, key: str) -> int:
        """-1: the key is not of a registration, or is malformed."""
        if not key.startswith(self._keys.controller_processes):
            return -1
        try:
            parsed = self._keys.parse(key)
        except ValueError:
            return -1
        return parsed.controller_id if isinstance(parsed, ControllerProcessKey) else -1

    def _take(self, controller_id: int, item: KeyValue) -> None:
        try:
            process = decode_controller_process(item.value)
        except (ValueError, TypeError):
            return
        known = self._known.get(controller_id)
        self._known[controller_id] = _Known(process, item.mod_revision)
        is_new = known is None or known.process != process
        if is_new and self._loaded:
            self._emit_stage(
                Kind.CONTROLLER_JOINED, Cause.REGISTERED, controller_id, item.mod_revision
            )

    def _gone(self, controller_id: int, revision: int) -> None:
        self._emit_stage(Kind.CONTROLLER_LEFT, Cause.REGISTRATION_ENDED, controller_id, revision)
        del self._known[controller_id]

    def _emit_stage(self, kind: Kind, cause: Cause, controller_id: int, revision: int) -> None:
        address = self._known[controller_id].process.address
        self._state_changes.emit(
            kind,
            Stage.COMPLETED,
            cause=cause,
            revision=revision,
            details={"controller": controller_id, "address": address},
        )
