"""A partition's log on disk (section 6 of ARCHITECTURE.md). Synchronous; all I/O goes
through `Disk`."""
