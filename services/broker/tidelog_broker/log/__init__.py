"""A partition's log on disk (design section 6). Synchronous; all I/O goes through `Disk`."""
