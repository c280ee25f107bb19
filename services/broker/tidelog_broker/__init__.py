"""The broker: stores partitions, serves clients, follows other leaders."""
