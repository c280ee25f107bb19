"""The history of partitions as tables, and a page about an incident."""
