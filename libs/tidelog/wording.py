"""Words that commands and findings share. Pure."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """
    >>> plural(1, "record"), plural(2000, "record"), plural(0, "batch", "batches")
    ('1 record', '2,000 records', '0 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"
