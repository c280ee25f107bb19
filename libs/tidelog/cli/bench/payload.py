"""Records of a load: values that carry the time when they were due, and keys. Pure.

A value is a mark, the time in nanoseconds since 1970 (UTC) in hexadecimal digits, and words that
compress like a text, by about three to one: zeros would compress too well, and random bytes not at
all."""

from __future__ import annotations

import random
import string
from itertools import cycle

_MARK = b"bench "
_STAMP_DIGITS = 16
_STAMP_BYTES = len(_MARK) + _STAMP_DIGITS
LEAST_RECORD_BYTES = _STAMP_BYTES
# Below the highest max_batch_bytes of a topic, with room for the batch's own fields.
MOST_RECORD_BYTES = 15 << 20
MOST_KEYS = 100_000_000
# Different values, within the bytes that they may take together.
_VALUES = 64
_VALUES_BYTES = 4 << 20
_WORDS = 4_000
_WORD_LETTERS = (3, 9)


class Payload:
    """Makes records.

    - `record_bytes`: size of a value.
    - `keys`: how many different keys; 0: no keys.
    - `rng`: equal seeds give equal keys and texts.
    """

    def __init__(self, record_bytes: int, keys: int, rng: random.Random) -> None:
        rest_bytes = record_bytes - _STAMP_BYTES
        count = max(1, min(_VALUES, _VALUES_BYTES // max(1, rest_bytes)))
        text = _text(rest_bytes * count, rng)
        pieces = [text[i * rest_bytes : (i + 1) * rest_bytes] for i in range(count)]
        self._rests = cycle(pieces)
        self._keys = keys
        self._rng = rng

    def key(self) -> bytes | None:
        return b"key-%d" % self._rng.randrange(self._keys) if self._keys else None

    def value(self, due_ns: int) -> bytes:
        return b"%b%016x%b" % (_MARK, due_ns, next(self._rests))


def due_ns_of(value: bytes | None) -> int | None:
    """Returns the time in a value of `Payload`; None for any other value."""
    if value is None or len(value) < _STAMP_BYTES or not value.startswith(_MARK):
        return None
    try:
        return int(value[len(_MARK) : _STAMP_BYTES], 16)
    except ValueError:
        return None


def _text(size: int, rng: random.Random) -> bytes:
    vocabulary = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(*_WORD_LETTERS)))
        for _ in range(_WORDS)
    ]
    fewest_letters = _WORD_LETTERS[0] + 1
    return " ".join(rng.choices(vocabulary, k=size // fewest_letters + 1)).encode()[:size]
