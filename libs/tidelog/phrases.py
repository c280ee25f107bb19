"""Phrases that commands and findings share."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Returns a count with its noun.
    >>> plural(1, "record"), plural(2000, "record"), plural(0, "batch", "batches")
    ('1 record', '2,000 records', '0 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


# How leadership returns to preferred replicas. The CLI, explain, the console and the documents use
# the same statement; tests/unit/docs compares them.
PREFERRED_RETURN = (
    "Leadership returns to preferred replicas by itself: every leader_balance_interval_ms "
    "(5 minutes), for each broker that lacks more than leader_imbalance_percent (10 %) of the "
    "leaderships that prefer it, unless leader_balance is false."
)
PREFERRED_AT_ONCE = "tidelog leaders elect-preferred"
