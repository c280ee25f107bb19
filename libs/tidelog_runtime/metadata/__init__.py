"""The metadata store: its protocol, its keys and values, and two implementations."""
