"""Values of random words from a vocabulary. They compress like texts, by about three to one.

Zeros would compress too well, and random bytes not at all. Pure."""

from __future__ import annotations

import random
import string
from itertools import islice

WORDS = 4_000
WORD_LETTERS = (3, 9)


def values(record_bytes: int, count: int, seed: int = 1) -> list[bytes]:
    """Returns values; equal seeds give equal values."""
    text = _text(record_bytes * count, random.Random(seed))
    return [text[i * record_bytes : (i + 1) * record_bytes] for i in range(count)]


def _text(size: int, rng: random.Random) -> bytes:
    vocabulary = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(*WORD_LETTERS)))
        for _ in range(WORDS)
    ]
    fewest_letters = WORD_LETTERS[0] + 1
    words = islice(iter(lambda: rng.choice(vocabulary), None), size // fewest_letters + 1)
    return " ".join(words).encode()[:size].ljust(size)
