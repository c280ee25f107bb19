"""A partition's log on disk ("Log on disk" in docs/internals/log-format.md). Synchronous; all I/O
goes through `Disk`."""
