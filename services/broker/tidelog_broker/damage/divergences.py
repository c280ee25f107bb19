"""Ranges of offsets in which two replicas hold different committed batches ("Replica digest" in
docs/internals/protocol.md).

Each divergence lasts until the range is found equal, or is gone, or another broker leads the
partition and compares from then on. No data is deleted because of it.

`evidence/` has a file for each: `.diverged` while it lasts, `.resolved` afterwards. Only the latter
are deleted, EVIDENCE_RETENTION_MS after they were resolved, or the oldest beyond
MAX_RESOLVED_FILES."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog.inspection.state_reports import DivergedOffsets
from tidelog.model import NO_LEADER, NO_OFFSET, TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change, Detail, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.range_digest import RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.damaged_batches import EVIDENCE_RETENTION_MS
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock

# More divergences than this are counted and logged, but not kept.
MAX_STANDING = 1_000
MAX_RESOLVED_FILES = 1_000
# How often divergences are checked for a range or a replica that is gone.
SWEEP_INTERVAL_S = 30.0
# In the description of one replica.
MAX_DESCRIBED = 20
_KIND = "divergence"
_DIVERGED, _RESOLVED = "diverged", "resolved"
_NAME = re.compile(
    r"(?P<topic_id>[A-Za-z0-9_-]{22})\.(?P<partition>\d+)@(?P<start>\d+)\.(?P<found_ms>\d+)"
    r"\.broker-(?P<broker>\d+)(?:\.(?P<resolved_ms>\d+))?\.(?P<state>diverged|resolved)"
)

_log = structlog.get_logger()


class DivergenceKey(NamedTuple):
    """The place of a divergence: a local replica, the broker of the other replica (this broker: its
    own disk), and the start of the range."""

    key: ReplicaKey
    broker_id: int
    start: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """One divergence.

    - `own`, `other`: digests of the range, in hexadecimal.
    - `batch_offset`: of the first batch that differs; NO_OFFSET: not known yet.
    """

    topic: str
    end: int
    own: str
    other: str
    found_at_ms: int
    batch_offset: int = NO_OFFSET
    own_batch: str = ""
    other_batch: str = ""
    own_segments: tuple[str, ...] = ()
    other_segments: tuple[str, ...] = ()

    def details(self, place: DivergenceKey, own_id: int) -> dict[str, Detail]:
        detail: dict[str, Detail] = {
            "other_broker": place.broker_id,
            "first_offset": place.start,
            "next_offset": self.end,
            "digest": self.own,
            "other_digest": self.other,
        }
        if place.broker_id == own_id:
            detail["why"] = "the disk holds other batches than were appended"
        if self.batch_offset != NO_OFFSET:
            detail["batch_offset"] = self.batch_offset
            detail["batch"], detail["other_batch"] = self.own_batch, self.other_batch
        if self.own_segments:
            detail["segments"] = list(self.own_segments)
        if self.other_segments:
            detail["other_segments"] = list(self.other_segments)
        return detail


class Divergences:
    """The divergences that last. `run` keeps their files until the broker stops."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        logs: LogDirectory,
        manager: ReplicaManager,
        clock: Clock,
        run_blocking: RunBlocking,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self._manager = manager
        self._clock = clock
        self._run_blocking = run_blocking
        self._standing: dict[DivergenceKey, Divergence] = {}
        self._changes: dict[DivergenceKey, Change] = {}
        self._unwritten: set[DivergenceKey] = set()
        self._is_changed = asyncio.Event()
        self.found_total = 0

    @property
    def count(self) -> int:
        return len(self._standing)

    def load(self) -> None:
        """Loads what previous incarnations of this broker found. Blocks; raises OSError."""
        for name in sorted(self._disk.list_names(self._directory)):
            match = _NAME.fullmatch(name)
            if match is None or match["state"] != _DIVERGED:
                continue
            key = ReplicaKey(match["topic_id"], int(match["partition"]))
            try:
                value = read_checked(self._disk, self._directory / name, _KIND)
                found = Divergence(**{**value["divergence"], **_tuples(value["divergence"])})
            except (DamagedFileError, TypeError, KeyError) as error:
                _log.warning("divergence_not_read", file=name, reason=str(error))
                continue
            self._standing[DivergenceKey(key, int(match["broker"]), int(match["start"]))] = found

    # -- found -------------------------------------------------------------------------

    def found(self, key: ReplicaKey, broker_id: int, own: RangeDigest, other: RangeDigest) -> bool:
        """Records that the local replica has the digest `own` in a range, and the broker's replica
        `other`.

        A range with the same start is the same divergence. Returns whether it has yet to be
        `located`."""
        name = self._logs.name_of(key)
        if name is None:
            return False
        place = DivergenceKey(key, broker_id, own.start)
        known = self._standing.get(place)
        if known is not None:
            if (known.end, known.own, known.other) != (own.end, str(own), str(other)):
                changed = replace(known, end=own.end, own=str(own), other=str(other))
                self._keep(place, changed)
            return not known.own_segments
        self.found_total += 1
        found = Divergence(name.topic, own.end, str(own), str(other), self._clock.wall_ms())
        subject = f"divergence-{key.topic_id}-{key.partition}-{own.start}-{broker_id}"
        change = self._manager.state_changes.condition_change(subject, Cause.DIVERGED)
        if len(self._standing) < MAX_STANDING:
            self._changes[place] = change
            self._keep(place, found)
        self._emit(Stage.REQUESTED, place, name, change, found.details(place, self._own_id))
        return place in self._standing

    def located(self, place: DivergenceKey, located: Divergence) -> None:
        """Adds the first batch that differs, if there is one, and the segment files."""
        if place not in self._standing or self._standing[place] == located:
            return
        is_news = self._standing[place].batch_offset != located.batch_offset
        self._keep(place, located)
        name = self._logs.name_of(place.key)
        if name is not None and is_news:
            details = located.details(place, self._own_id)
            self._emit(Stage.RECEIVED, place, name, self._change_of(place), details)

    def standing(self, place: DivergenceKey) -> Divergence | None:
        return self._standing.get(place)

    def equal(self, key: ReplicaKey, broker_id: int, digest: RangeDigest) -> None:
        """Resolves a divergence: both replicas have the same batches in this range."""
        if not self._standing:
            return
        place = DivergenceKey(key, broker_id, digest.start)
        known = self._standing.get(place)
        if known is not None and known.end <= digest.end:
            self._resolve(place, "both replicas now hold the same batches")

    def scrubbed(self, key: ReplicaKey, found: RangeDigest, *, is_as_appended: bool) -> bool:
        """Compares what the local disk holds in a range. Returns whether that resolves its
        divergence.

        It does if it is what was appended, or what was appended when the divergence was found."""
        place = DivergenceKey(key, self._own_id, found.start)
        known = self._standing.get(place)
        if known is None or known.end > found.end:
            return False
        is_restored = (known.end, known.own) == (found.end, str(found))
        if is_as_appended or is_restored:
            self._resolve(place, "the disk holds the batches that were appended")
        return is_as_appended or is_restored

    @property
    def _own_id(self) -> int:
        return self._manager.broker_id

    def _change_of(self, place: DivergenceKey) -> Change:
        """Returns an unknown change for a divergence that a previous incarnation found."""
        return self._changes.get(place, NO_CHANGE._replace(cause=Cause.DIVERGED))

    def _keep(self, place: DivergenceKey, divergence: Divergence) -> None:
        self._standing[place] = divergence
        self._unwritten.add(place)
        self._is_changed.set()

    def _resolve(self, place: DivergenceKey, why: str) -> None:
        divergence = self._standing.pop(place)
        change = self._change_of(place)
        self._changes.pop(place, None)
        name = self._logs.name_of(place.key) or TopicPartition(divergence.topic, place.key[1])
        details = {**divergence.details(place, self._own_id), "end": why}
        self._emit(Stage.COMPLETED, place, name, change, details)
        self._unwritten.add(place)
        self._is_changed.set()

    def _emit(
        self,
        stage: Stage,
        place: DivergenceKey,
        name: TopicPartition,
        change: Change,
        details: dict[str, Detail],
    ) -> None:
        partition = self._manager.find(place.key)
        self._manager.state_changes.emit(
            Kind.REPLICA_DIVERGED,
            stage,
            change=change,
            name=name,
            topic_id=place.key.topic_id,
            broker=self._own_id,
            broker_epoch=self._manager.broker_epoch,
            leader_epoch=partition.leader_epoch if partition is not None else -1,
            revision=partition.revision if partition is not None else 0,
            details=details,
        )

    # -- described ---------------------------------------------------------------------

    def of(self, key: ReplicaKey) -> list[DivergedOffsets]:
        """Returns the first MAX_DESCRIBED of one replica."""
        if not self._standing:
            return []
        places = sorted(place for place in self._standing if place.key == key)
        return [self._described(place) for place in places[:MAX_DESCRIBED]]

    def _described(self, place: DivergenceKey) -> DivergedOffsets:
        found = self._standing[place]
        return DivergedOffsets(
            broker_id=place.broker_id,
            first_offset=place.start,
            next_offset=found.end,
            digest=found.own,
            other_digest=found.other,
            batch_offset=found.batch_offset,
            batch=found.own_batch,
            other_batch=found.other_batch,
            segments=found.own_segments,
            other_segments=found.other_segments,
            found_at_ms=found.found_at_ms,
            evidence=f"{self._directory.name}/{_file_name(place, found.found_at_ms, _DIVERGED)}",
        )

    # -- files -------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            try:
                is_idle = not self._standing and not self._unwritten
                async with asyncio.timeout(None if is_idle else SWEEP_INTERVAL_S):
                    await self._is_changed.wait()
            except TimeoutError:
                pass
            self._is_changed.clear()
            self.sweep()
            await self._write()

    def sweep(self) -> None:
        """Resolves divergences whose range or replica is gone."""
        for place, found in list(self._standing.items()):
            why = self._reason_gone(place, found.end)
            if why:
                self._resolve(place, why)

    def _reason_gone(self, place: DivergenceKey, end: int) -> str:
        if self._logs.is_out_of_service(place.key):
            return ""
        log = self._logs.log_of(place.key)
        if log is None:
            return (
                "" if self._logs.name_of(place.key) else "this broker no longer holds the replica"
            )
        if log.log_start_offset >= end:
            return "the records have expired"
        if log.log_end_offset < end:
            return "this broker's replica was truncated below the range"
        partition = self._manager.find(place.key)
        state = partition.state if partition is not None else None
        if state is not None and place.broker_id not in state.replicas:
            return "the other replica is no longer assigned"
        is_of_disk = place.broker_id == self._own_id
        if not is_of_disk and state is not None and state.leader not in (self._own_id, NO_LEADER):
            return "another broker leads, and compares from now on"
        return ""

    async def _write(self) -> None:
        unwritten, self._unwritten = self._unwritten, set()
        standing = {place: self._standing.get(place) for place in unwritten}
        if not standing:
            return

        def write() -> None:
            for place, found in standing.items():
                if found is None:
                    self._rename_resolved(place)
                else:
                    self._write_file(place, found)
            self._delete_old()

        try:
            await self._run_blocking(write)
        except OSError as error:
            _log.error("divergence_not_written", reason=str(error))
            # Retried with the next sweep.
            self._unwritten |= standing.keys()

    def _write_file(self, place: DivergenceKey, found: Divergence) -> None:
        value = {
            "partition": place.key.partition,
            "broker": self._own_id,
            "other_broker": place.broker_id,
            "first_offset": place.start,
            "divergence": {name: getattr(found, name) for name in Divergence.__slots__},
        }
        path = self._directory / _file_name(place, found.found_at_ms, _DIVERGED)
        write_checked(self._disk, path, _KIND, value, sync=True)

    def _rename_resolved(self, place: DivergenceKey) -> None:
        prefix, suffix = _prefix(place), f".broker-{place.broker_id}.{_DIVERGED}"
        for name in self._disk.list_names(self._directory):
            if name.startswith(prefix) and name.endswith(suffix):
                target = f"{name.removesuffix(_DIVERGED)}{self._clock.wall_ms()}.{_RESOLVED}"
                self._disk.rename(self._directory / name, self._directory / target)

    def _delete_old(self) -> None:
        found = (_NAME.fullmatch(name) for name in self._disk.list_names(self._directory))
        resolved = sorted(
            (int(match["resolved_ms"] or match["found_ms"]), match[0])
            for match in found
            if match is not None and match["state"] == _RESOLVED
        )
        oldest_ms = self._clock.wall_ms() - EVIDENCE_RETENTION_MS
        surplus = len(resolved) - MAX_RESOLVED_FILES
        for position, (resolved_ms, name) in enumerate(resolved):
            if position < surplus or resolved_ms < oldest_ms:
                self._disk.remove(self._directory / name)


def _prefix(place: DivergenceKey) -> str:
    return f"{place.key.topic_id}.{place.key.partition}@{place.start}."


def _file_name(place: DivergenceKey, found_at_ms: int, state: str) -> str:
    return f"{_prefix(place)}{found_at_ms}.broker-{place.broker_id}.{state}"


def _tuples(value: dict[str, object]) -> dict[str, object]:
    """JSON has only lists."""
    return {name: tuple(held) for name, held in value.items() if isinstance(held, list)}
