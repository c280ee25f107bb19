"""The data directory: its identity, its logs, and their syncs."""
