"""Chooses topics of a backup. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from tidelog.backup.manifest import BackupError, Manifest, TopicBackup


def matching(manifest: Manifest, patterns: Sequence[str]) -> list[TopicBackup]:
    """Returns the topics that match a pattern of a shell. Raises `BackupError` for a pattern that
    matches none."""
    for pattern in patterns:
        if pattern != "*" and not any(_matches(t, [pattern]) for t in manifest.topics):
            raise BackupError(f"no topic of the backup matches {pattern!r}")
    return [topic for topic in manifest.topics if _matches(topic, patterns)]


def _matches(topic: TopicBackup, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(topic.topic, pattern) for pattern in patterns)
