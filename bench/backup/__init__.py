"""Backup and restore of a topic: `make bench-backup`."""
