"""Backs up topics into a directory, checks the directory, and restores it into a cluster.

    manifest = await create_backup("127.0.0.1:7500", Path("backup"))
    print(verify_backup(Path("backup")).fault_count)
    await restore_backup("127.0.0.1:8500", Path("backup"))
    print((await compare_backup("127.0.0.1:8500", Path("backup"))).difference_count)

`manifest` defines what a backup has, `directory` its files, `offset_mapping` the offsets after a
restore.
"""

from tidelog.backup.comparison import Comparison, compare_backup
from tidelog.backup.creation import CreateOptions, create_backup
from tidelog.backup.directory import BackupDirectory, UnwritableBackupError
from tidelog.backup.manifest import (
    BackupError,
    ClusterSettings,
    Gap,
    GapReason,
    Manifest,
    PartitionBackup,
    Segment,
    TopicBackup,
)
from tidelog.backup.offset_mapping import KeptRange, kept_ranges
from tidelog.backup.restoration import RestoreOptions, RestoreResult, TopicResult, restore_backup
from tidelog.backup.verification import Verification, verify_backup

__all__ = [
    "BackupDirectory",
    "BackupError",
    "ClusterSettings",
    "Comparison",
    "CreateOptions",
    "Gap",
    "GapReason",
    "KeptRange",
    "Manifest",
    "PartitionBackup",
    "RestoreOptions",
    "RestoreResult",
    "Segment",
    "TopicBackup",
    "TopicResult",
    "UnwritableBackupError",
    "Verification",
    "compare_backup",
    "create_backup",
    "kept_ranges",
    "restore_backup",
    "verify_backup",
]
