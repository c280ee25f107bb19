"""A partition's log on disk (section 6 of docs/protocol.md). Synchronous; all I/O goes
through `Disk`."""
