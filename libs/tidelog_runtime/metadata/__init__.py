"""The metadata store: its interface, its keys and values, and two implementations."""
