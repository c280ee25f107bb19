"""The data directory: whose it is, its logs, and their syncs."""
