"""Durations and sizes as people write them, in options, tables and messages. Pure functions.

- A duration is a number with `ms`, `s`, `m` (or `min`), `h` or `d`, or several of them, the largest
  unit first: `500ms`, `10m`, `7d`, `1h30m`.
- A size is a number with `B`; with `kB`, `MB`, `GB` or `TB`, which are powers of 1,000; or with
  `KiB`, `MiB`, `GiB` or `TiB`, which are powers of 1,024. Case does not matter. A lone `k`, `M` or
  `G` is rejected, because programs disagree about its meaning.
- A number without a unit has the unit of its option or setting.
- Fractions such as `1.5h` are valid if the result is an integer of milliseconds or bytes.

What the format functions return is exact, and the parse functions return the same number for it.
JSON output has numbers without units.
"""

from __future__ import annotations

import re
from fractions import Fraction

# The highest number that the 64-bit integers of all interfaces can hold.
MAX_NUMBER = 2**63 - 1
UNLIMITED = "unlimited"
_UNLIMITED_NUMBER = "-1"

DURATION_FORMS = "500ms, 10s, 10m, 2h, 7d or 1h30m"
SIZE_FORMS = "512B, 64KiB, 256MiB, 1GiB or 50MB"
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN_MS = ("d", "h", "min", "s", "ms")
_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_BYTES_BY_LOWER = {unit.lower(): factor for unit, factor in _BYTES.items()}
_NUMBER = r"\d{1,19}(?:\.\d{1,9})?"
_BARE = re.compile(_NUMBER, re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_PART = re.compile(rf"({_NUMBER}) ?([a-z]+) ?", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER}) ?([a-z]+)", re.ASCII)


def parse_duration_ms(text: str, bare_unit_ms: int = 1) -> int:
    """Returns milliseconds. `bare_unit_ms`: the unit of a number without one. Raises `ValueError`.

    >>> parse_duration_ms("7d"), parse_duration_ms("1h 30min"), parse_duration_ms("1.5s")
    (604800000, 5400000, 1500)
    >>> parse_duration_ms("250"), parse_duration_ms("30", bare_unit_ms=1_000)
    (250, 30000)
    """
    stated = text.strip()
    if _BARE.fullmatch(stated):
        return _integer(text, Fraction(stated) * bare_unit_ms, "milliseconds")
    total = Fraction(0)
    position, last_ms = 0, MAX_NUMBER
    for part in _PART.finditer(stated):
        unit_ms = _MS.get(part[2], MAX_NUMBER)
        if part.start() != position or unit_ms >= last_ms:
            break
        total += Fraction(part[1]) * unit_ms
        position, last_ms = part.end(), unit_ms
    if not stated or position != len(stated):
        raise ValueError(f"{text!r} is not a duration; give one as {DURATION_FORMS}")
    return _integer(text, total, "milliseconds")


def parse_size_bytes(text: str) -> int:
    """Returns bytes. Raises `ValueError`.

    >>> parse_size_bytes("256MiB"), parse_size_bytes("1.5 kB"), parse_size_bytes("65536")
    (268435456, 1500, 65536)
    """
    stated = text.strip().lower()
    if _BARE.fullmatch(stated):
        return _integer(text, Fraction(stated), "bytes")
    match = _SIZE.fullmatch(stated)
    factor = _BYTES_BY_LOWER.get(match[2]) if match else None
    if match is None or factor is None:
        hint = ""
        if match is not None and len(match[2]) == 1 and f"{match[2]}ib" in _BYTES_BY_LOWER:
            decimal, binary = (u for u in reversed(_BYTES) if u.lower().startswith(match[2]))
            hint = f" ({decimal} for a power of 1,000, {binary} for a power of 1,024)"
        raise ValueError(f"{text!r} is not a size; give one as {SIZE_FORMS}{hint}")
    return _integer(text, Fraction(match[1]) * factor, "bytes")


def format_duration_ms(duration_ms: int) -> str:
    """Returns an exact duration, at least 0.

    >>> format_duration_ms(604_800_000), format_duration_ms(5_400_500), format_duration_ms(0)
    ('7 d', '1 h 30 min 500 ms', '0 ms')
    """
    parts = []
    rest = duration_ms
    for unit in _SHOWN_MS:
        count, rest = divmod(rest, _MS[unit])
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 ms"


def format_size_bytes(size_bytes: int) -> str:
    """Returns an exact size, at least 0: in the unit with the smallest number, powers of 1,024
    first. (`size_text` rounds, for measured sizes.)

    >>> format_size_bytes(256 << 20), format_size_bytes(50_000_000), format_size_bytes(1025)
    ('256 MiB', '50 MB', '1025 B')
    """
    exact = [(size_bytes // n, unit) for unit, n in _BYTES.items() if size_bytes % n == 0]
    count, unit = min(exact, key=lambda pair: pair[0])
    return f"{count} {unit}"


def size_text(size_bytes: float) -> str:
    """Returns a rounded size, for measurements, in a power of 1,000.

    >>> size_text(512), size_text(3_400_000), size_text(999_960), size_text(7.25e15)
    ('512 B', '3.4 MB', '1.0 MB', '7,250.0 TB')
    """
    size, digits = size_bytes, 0
    for unit in ("B", "kB", "MB", "GB"):
        if round(size, digits) < 1_000:
            return f"{size:.{digits}f} {unit}"
        size, digits = size / 1_000, 1
    return f"{size:,.1f} TB"


def parse_setting(key: str, text: str) -> str:
    """Returns a topic's setting in the form that the cluster takes. Numbers, and settings that are
    neither a duration nor a size, are returned as they are. Raises `ValueError`.

    >>> parse_setting("retention_ms", "7d"), parse_setting("segment_bytes", "256MiB")
    ('604800000', '268435456')
    >>> parse_setting("retention_bytes", "unlimited"), parse_setting("recovery", "manual")
    ('-1', 'manual')
    """
    if _INTEGER.fullmatch(text):
        return text
    if not key.endswith(("_ms", "_bytes")):
        return text
    if text.lower() == UNLIMITED:
        return _UNLIMITED_NUMBER
    return str(parse_duration_ms(text) if key.endswith("_ms") else parse_size_bytes(text))


def format_setting(key: str, text: str) -> str:
    """Returns a topic's setting for people: what `parse_setting` turns into the same text again.

    >>> format_setting("retention_ms", "604800000"), format_setting("retention_bytes", "-1")
    ('7 d', 'unlimited')
    >>> format_setting("recovery", "manual"), format_setting("segment_ms", "")
    ('manual', '')
    """
    if not key.endswith(("_ms", "_bytes")) or not _INTEGER.fullmatch(text):
        return text
    if text == _UNLIMITED_NUMBER:
        return UNLIMITED
    # What is not stored in this form is shown as it is: more digits, a sign, leading zeros.
    if len(text) > len(str(MAX_NUMBER)):
        return text
    number = int(text)
    if not 0 <= number <= MAX_NUMBER or text != str(number):
        return text
    return format_duration_ms(number) if key.endswith("_ms") else format_size_bytes(number)


def setting_argument(key: str, text: str) -> str:
    """Returns a topic's setting as the value of `--config` or `--set`.

    >>> setting_argument("retention_ms", "604800000"), setting_argument("recovery", "manual")
    ('retention_ms=7d', 'recovery=manual')
    """
    shown = format_setting(key, text)
    return f"{key}={shown if shown == text else shown.replace(' ', '')}"


def _integer(text: str, number: Fraction, unit: str) -> int:
    if number.denominator != 1:
        raise ValueError(f"{text!r} is not an integer number of {unit}; give a multiple of one")
    if number > MAX_NUMBER:
        raise ValueError(f"{text!r} is too large; give at most {MAX_NUMBER} {unit}")
    return number.numerator
