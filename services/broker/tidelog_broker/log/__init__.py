"""A partition's log on disk (section 6 of docs/internals/log-format.md). Synchronous; all I/O goes
through `Disk`."""
