"""Puts the batches of an only copy in order if they lie in the wrong segment files ("Misplaced
segments" in docs/internals/log-format.md).

Files may have been copied, renamed, restored from a backup, or written behind their end. All valid
frames of all files are found, and those are chosen that form the log. A file that holds them in
order keeps its content and at most gets its right name; otherwise they are copied to new files.
What is left over is passed to `Evidence` and removed, unless it has valid batches of its own.

Nothing valid is removed before it is on disk elsewhere: a file that does not stay is first renamed
to a name that a later start reads, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import PurePath

import structlog

from tidelog.log_format import (
    MAX_FRAME_BYTES,
    MAX_OFFSET,
    segment_name,
    walk_frames,
)
from tidelog.model import NO_EPOCH, BatchHeader
from tidelog_broker.log.bad_sectors import BadSectorReader
from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk, DiskFile
from tidelog_broker.log.indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.misplaced_batches import (
    ASIDE_SUFFIX,
    FrameRun,
    SegmentFile,
    find_files,
)
from tidelog_broker.log.quarantine import (
    DamagedRange,
    Evidence,
    can_quarantine,
    first_coverable_part,
)
from tidelog_broker.log.segment import segment_path

_COPY_BYTES = 1 << 20
# A file whose valid batches are not in the log. No start reads or removes it.
_LEFTOVER_SUFFIX = ".leftover"

_log = structlog.get_logger()


@dataclass(slots=True)
class _Target:
    """A segment of the arranged log.

    - `file`: the file whose first `size` bytes it consists of; None: a copy of `runs`.
    """

    base: int
    end_offset: int
    file: SegmentFile | None = None
    size: int = 0
    runs: list[FrameRun] = field(default_factory=list)

    @property
    def stays(self) -> bool:
        return self.file is not None and not self.file.is_aside and self.file.base == self.base


def arrange_segments(
    disk: Disk,
    directory: PurePath,
    *,
    start: int,
    epochs: LeaderEpochs | None,
    min_end_offset: int,
    evidence: Evidence,
) -> list[int]:
    """Arranges the segments of a log that begins at `start`, and returns their base offsets.

    Each begins at or behind the end of the one before; all is on disk on return. Damaged ranges
    stay in the file that has them, as far as no other file has their batches.

    - `epochs`: those that the log is known to have; None: unknown. A misplaced batch of another
      epoch is not used.
    - `min_end_offset`: the log reached at least this offset. The name of a segment without a batch
      does not show that it reached any higher one.

    Blocks; raises OSError."""
    files = find_files(disk, directory)
    runs = [run for file in files for run in file.runs]
    chosen = _Chain(disk, runs, epochs).choose(start)
    targets = _targets(files, chosen, start)
    _keep_damaged_files(files, targets, start, min_end_offset)
    if not targets or targets[0].base != start:
        targets.insert(0, _Target(start, start))
    _set_sizes(targets)
    _Move(disk, directory, files, targets, evidence).run()
    return [target.base for target in targets]


class _Chain:
    """Chooses the runs that form the log, if several files have the same offsets."""

    def __init__(self, disk: Disk, runs: Sequence[FrameRun], epochs: LeaderEpochs | None) -> None:
        self._disk = disk
        self._epochs = LeaderEpochs() if epochs is None else epochs
        self._known = list(filter(self._has_known_epoch, runs))
        self._later = sorted(filter(self._belongs, runs), key=lambda run: run.first_offset)
        self._covering: list[FrameRun] = []

    def _belongs(self, run: FrameRun) -> bool:
        """The file of epochs may lack the last ones. Batches of an epoch that it does not have
        there exclude none that have the right one."""
        known = self._epochs.entries
        if not known or self._has_known_epoch(run):
            return True
        is_newer = (
            run.leader_epoch > known[-1].leader_epoch and run.first_offset >= known[-1].start_offset
        )
        if not (is_newer or run.is_in_place):
            return False
        others = self._known
        if is_newer and run.is_in_place:
            others = [other for other in others if other.is_in_place]
        return all(
            other.leader_epoch <= run.leader_epoch
            if other.next_offset <= run.first_offset
            else other.first_offset >= run.next_offset and other.leader_epoch >= run.leader_epoch
            for other in others
        )

    def _has_known_epoch(self, run: FrameRun) -> bool:
        return run.leader_epoch == self._epochs.epoch_at(run.first_offset)

    def choose(self, start: int) -> list[FrameRun]:
        """Returns runs in the order of their offsets, which may have gaps but do not overlap."""
        chosen: list[FrameRun] = []
        expected, epoch = start, NO_EPOCH
        while True:
            self._advance(expected, epoch)
            if self._covering:
                best = min(self._covering, key=lambda run: self._rank(run, chosen))
                self._covering.remove(best)
                part = self._part(best, expected)
                if part is None:
                    continue
                chosen.append(part)
                expected, epoch = part.next_offset, part.leader_epoch
                if part.end < best.end:
                    rest = best._replace(position=part.end, size=best.end - part.end)
                    self._covering.append(rest._replace(first_offset=expected))
            elif self._later:
                expected = self._later[0].first_offset
            else:
                return chosen

    def _advance(self, expected: int, epoch: int) -> None:
        while self._later and self._later[0].first_offset <= expected:
            self._covering.append(self._later.pop(0))
        self._covering = [
            run
            for run in self._covering
            if run.next_offset > expected and run.leader_epoch >= epoch
        ]

    def _rank(self, run: FrameRun, chosen: Sequence[FrameRun]) -> tuple[bool, bool, bool, int]:
        """Returns the lowest for the best run at an offset."""
        continues = bool(chosen) and (chosen[-1].path, chosen[-1].end) == (run.path, run.position)
        return run.is_unreadable, not run.is_in_place, not continues, -run.first_offset

    def _part(self, run: FrameRun, expected: int) -> FrameRun | None:
        """Returns the part of the run from `expected` to where a better one may begin.

        If no frame begins at `expected`, the rest of the run is considered later."""
        if run.is_unreadable:
            limit = next((r.first_offset for r in self._later if not r.is_unreadable), MAX_OFFSET)
            return run if run.first_offset == expected and run.next_offset <= limit else None
        rest = self._from(run, expected)
        if rest is None or rest.first_offset > expected:
            self._consider_later(rest)
            return None
        limit = next(
            (r.first_offset for r in self._later if r.is_in_place and not r.is_unreadable),
            MAX_OFFSET,
        )
        if not run.is_in_place:
            later_epochs = (entry.start_offset for entry in self._epochs.entries)
            limit = min(limit, next((at for at in later_epochs if at > expected), MAX_OFFSET))
        if limit >= rest.next_offset:
            return rest
        behind = self._from(rest, limit)
        if behind is not None and behind.first_offset == limit:
            return rest._replace(size=behind.position - rest.position, next_offset=limit)
        part = rest if run.is_in_place else self._below(rest, limit)
        if part is None:
            self._consider_later(behind)
        return part

    def _consider_later(self, run: FrameRun | None) -> None:
        if run is not None:
            self._later = sorted([run, *self._later], key=lambda run: run.first_offset)

    def _from(self, run: FrameRun, offset: int) -> FrameRun | None:
        """Returns the part of a run from the first frame at or above an offset on."""
        for position, header in _frames(self._disk, run):
            if header.base_offset >= offset:
                return run._replace(
                    position=position, size=run.end - position, first_offset=header.base_offset
                )
        return None

    def _below(self, run: FrameRun, limit: int) -> FrameRun | None:
        """Returns the part of a run whose frames end at or below an offset."""
        part = None
        for position, header in _frames(self._disk, run):
            if header.base_offset > run.first_offset:
                size, end = position - run.position, header.base_offset
                part = run._replace(size=size, next_offset=end) if end <= limit else part
        return part


def _frames(disk: Disk, run: FrameRun) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each frame of a run."""
    file = disk.open(run.path)
    try:
        read = BadSectorReader(file).read_at
        for info in walk_frames(read, run.end, start=run.position, verify=False):
            if info.header is not None:
                yield info.position, info.header
    finally:
        file.close()


def _targets(files: Sequence[SegmentFile], chosen: Sequence[FrameRun], start: int) -> list[_Target]:
    """Groups runs that one segment can hold, and finds the file that has a group at its
    beginning."""
    by_path = {file.path: file for file in files}
    targets: list[_Target] = []
    for run in chosen:
        file = by_path[run.path]
        if targets and _continues(targets[-1].runs[-1], run, file):
            targets[-1].runs.append(run)
            targets[-1].end_offset = run.next_offset
            continue
        end = targets[-1].end_offset if targets else start
        target = _Target(run.first_offset, run.next_offset, runs=[run])
        if run.position == 0:
            target.file = file
        elif (
            # What is damaged before the run stays in the file.
            not file.is_aside
            and end <= file.base < run.first_offset
            and file.valid_from(0) == run.position
            and _is_coverable(0, run.position, file.base, run.first_offset)
        ):
            target.file, target.base = file, file.base
        targets.append(target)
    return targets


def _continues(last: FrameRun, run: FrameRun, file: SegmentFile) -> bool:
    """Returns whether a run lies behind another one in its file as it has to in a segment: at its
    end, or behind damaged bytes of the offsets between them."""
    if run.path != last.path or run.position < last.end:
        return False
    if run.first_offset == last.next_offset:
        return run.position == last.end
    return file.valid_from(last.end) == run.position and _is_coverable(
        last.end, run.position, last.next_offset, run.first_offset
    )


def _is_coverable(position: int, end: int, first_offset: int, next_offset: int) -> bool:
    """Returns whether unreadable batches of these offsets can cover the bytes in between."""
    damaged = DamagedRange(first_offset, next_offset, position, end - position, "")
    return can_quarantine(first_coverable_part(damaged), at_end=False)


def _keep_damaged_files(
    files: Sequence[SegmentFile], targets: list[_Target], start: int, min_end_offset: int
) -> None:
    """Adds the files without a valid frame that fill a gap between the segments, or the end."""
    for file in files:
        if file.is_aside or file.runs:
            continue
        end = max((t.end_offset for t in targets if t.base <= file.base), default=start)
        is_last = all(target.base < file.base for target in targets)
        if (
            end <= file.base
            and all(target.base != file.base for target in targets)
            and (not is_last or file.base == end or file.base <= min_end_offset)
        ):
            targets.append(_Target(file.base, file.base, file))
            targets.sort(key=lambda target: target.base)


def _set_sizes(targets: Sequence[_Target]) -> None:
    """Cuts what lies behind the end of a segment: all if the next one continues it, otherwise what
    was not chosen. Damaged bytes in between stay."""
    following: int | None = None
    for target in reversed(targets):
        if target.file is not None:
            end = target.runs[-1].end if target.runs else 0
            continues = following == target.end_offset
            target.size = end if continues else target.file.valid_from(end)
        following = target.base


class _Move:
    """Moves files and batches to their segments."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        files: Sequence[SegmentFile],
        targets: Sequence[_Target],
        evidence: Evidence,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._files = files
        self._targets = targets
        self._evidence = evidence
        self._path_of = {file.path: file.path for file in files}

    def run(self) -> None:
        staying = {t.file.path for t in self._targets if t.file is not None and t.stays}
        leaving = [file for file in self._files if file.path not in staying]
        used = {target.file.path for target in self._targets if target.file is not None}
        left = [file for file in leaving if file.path not in used]
        redundant = list(filter(self._is_redundant, left))
        left = [file for file in left if file not in redundant]
        foreign = [file for file in left if self._has_other_batches(file)]
        self._set_aside(leaving)
        copies = [target for target in self._targets if target.file is None]
        self._remove_copied(redundant, copies)
        while copies:
            self._copy(copies.pop(0))
            self._remove_copied(redundant, copies)
        for target in self._targets:
            if target.file is not None and not target.stays:
                path = segment_path(self._directory, target.base)
                self._disk.rename(self._path_of[target.file.path], path)
                self._path_of[target.file.path] = path
        self._disk.sync_directory(self._directory)
        cut = [t for t in self._targets if t.file is not None and t.size < t.file.size]
        for target in cut:
            self._cut(target)
        for file in left:
            if file in foreign:
                self._rename(file, _LEFTOVER_SUFFIX)
            else:
                self._store_evidence(file, 0, file.base)
                self._disk.remove(self._path_of[file.path])
        self._disk.sync_directory(self._directory)
        if leaving or cut:
            _log.warning(
                "segments_arranged",
                log=str(self._directory),
                moved=[file.path.name for file in leaving],
                cut=[t.file.path.name for t in cut if t.file is not None],
                not_in_log=[self._path_of[file.path].name for file in foreign],
                why="batches lay in segment files of other offsets; all of them were kept",
            )

    def _set_aside(self, leaving: Sequence[SegmentFile]) -> None:
        for file in leaving:
            if not file.is_aside:
                self._rename(file, ASIDE_SUFFIX)
                self._remove_indexes(file.path)
        self._disk.sync_directory(self._directory)

    def _rename(self, file: SegmentFile, suffix: str) -> None:
        """Renames to a segment's name with a number and this suffix."""
        taken = self._disk.list_names(self._directory)
        number = 0
        while (name := f"{segment_name(file.base)}.{number}{suffix}") in taken:
            number += 1
        self._disk.rename(self._path_of[file.path], self._directory / name)
        self._path_of[file.path] = self._directory / name

    def _has_other_batches(self, file: SegmentFile) -> bool:
        """Returns whether the file has valid batches that are not in the arranged log."""
        return not all(run.is_unreadable or self._is_chosen(run) for run in file.runs)

    def _is_redundant(self, file: SegmentFile) -> bool:
        """Returns whether the file has nothing but valid batches of the arranged log."""
        is_valid = file.size > 0 and sum(run.size for run in file.runs) == file.size
        return is_valid and all(map(self._is_chosen, file.runs))

    def _is_chosen(self, run: FrameRun) -> bool:
        """Returns whether the arranged log has these batches, from whichever file."""
        chosen = (
            header
            for target in self._targets
            for part in target.runs
            if part.first_offset < run.next_offset and part.next_offset > run.first_offset
            for _, header in _frames(self._disk, part)
            if run.first_offset <= header.base_offset < run.next_offset
        )
        headers = (header for _, header in _frames(self._disk, run))
        return all(a == b for a, b in zip_longest(headers, chosen))

    def _remove_copied(self, redundant: list[SegmentFile], copies: Sequence[_Target]) -> None:
        """Removes redundant files that are not the source of a copy, for the space of the next
        one. The batches are on disk elsewhere."""
        sources = {run.path for target in copies for run in target.runs}
        removed = [file for file in redundant if file.path not in sources]
        if removed:
            self._disk.sync_directory(self._directory)
        for file in removed:
            self._disk.remove(self._path_of[file.path])
            redundant.remove(file)

    def _copy(self, target: _Target) -> None:
        path = segment_path(self._directory, target.base)
        temporary = PurePath(f"{path}{TEMPORARY_SUFFIX}")
        self._disk.remove(temporary)
        try:
            copy = self._disk.open(temporary, create=True)
            try:
                self._write_runs(copy, target.runs)
                copy.sync()
            finally:
                copy.close()
        except OSError:
            # On a full disk the partial file would take room that others need.
            with suppress(OSError):
                self._disk.remove(temporary)
            raise
        self._disk.rename(temporary, path)

    def _write_runs(self, copy: DiskFile, runs: Sequence[FrameRun]) -> None:
        end = 0
        for run in runs:
            source = self._disk.open(self._path_of[run.path])
            try:
                for position in range(run.position, run.end, _COPY_BYTES):
                    data = source.read_at(min(_COPY_BYTES, run.end - position), position)
                    copy.write_at(end, [data])
                    end += len(data)
            finally:
                source.close()

    def _cut(self, target: _Target) -> None:
        assert target.file is not None
        self._store_evidence(target.file, target.size, target.end_offset)
        path = self._path_of[target.file.path]
        file = self._disk.open(path)
        try:
            file.truncate(target.size)
            file.sync()
        finally:
            file.close()
        self._remove_indexes(path)

    def _store_evidence(self, file: SegmentFile, position: int, offset: int) -> None:
        size = min(file.size - position, MAX_FRAME_BYTES)
        if size <= 0:
            return
        opened = self._disk.open(self._path_of[file.path])
        try:
            data = BadSectorReader(opened).read_at(size, position)
        finally:
            opened.close()
        reason = "it does not continue the log, or holds what another segment holds"
        cut = DamagedRange(offset, offset, position, size, reason)
        self._evidence(file.path, cut, data)

    def _remove_indexes(self, path: PurePath) -> None:
        self._disk.remove(path.with_suffix(INDEX_SUFFIX))
        self._disk.remove(path.with_suffix(TIME_INDEX_SUFFIX))
