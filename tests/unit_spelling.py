"""How prose spells quantities: digits, a space, and the unit in one spelling.

Units are ns, µs, ms and s; minutes, hours and days; B, kB, MB and GB for powers of 1,000; KiB, MiB
and GiB for powers of 1,024; and %. Output that a program formats has '1 h 5 min'.
"""

from __future__ import annotations

import re

_NUMBER = r"(?<![\w.,])\d[\d,.]*"
_UNITS = "ns|[µu]s|ms|s|min|h|B|[kKMGT]i?B"

# In prose and in texts of programs. Each spelling, with what to write instead.
EVERYWHERE = {
    rf"{_NUMBER}[ -](?:seconds?|secs?)": "s, as in 5 s",
    rf"{_NUMBER}[ -](?:milli|micro|nano)(?:seconds?|secs?)": "ms, µs or ns, as in 5 ms",
    rf"{_NUMBER} (?:us|μs)": "µs, with the micro sign U+00B5",
    rf"{_NUMBER} ?(?:KB|Kb|kb|Kib|kib|kiB)": "kB for 1,000 bytes, KiB for 1,024",
    rf"{_NUMBER} ?(?:Mb|mb|mB|Mib|mib|miB)": "MB for 1,000,000 bytes, MiB for 1,048,576",
    rf"{_NUMBER} ?(?:Gb|gb|gB|Gib|gib|giB)": "GB for 10^9 bytes, GiB for 2^30",
    rf"{_NUMBER} (?:kilo|mega|giga|kibi|mebi|gibi)bytes?": "kB, MB, GB, KiB, MiB or GiB",
}
# In prose alone: texts of programs also have output and values of options, such as `50MB`.
IN_PROSE = {
    rf"{_NUMBER}(?:{_UNITS})": "a space before the unit",
    rf"{_NUMBER}-(?:{_UNITS})": "a space before the unit",
    rf"{_NUMBER} (?:min|mins|hrs?|h)(?!'| \d)": "minutes or hours",
    rf"{_NUMBER} ?(?:percent|per cent)": "%, as in 5 %",
    rf"{_NUMBER}%": "a space before the unit",
    r"(?:bytes|records|requests|[kMG]i?B)/sec(?:ond)?": "/s",
}
# Places where the spelling has not been repaired yet, by file. No number may grow.
ALLOWED = {
    "libs/tidelog/cli/session.py": 1,
    "libs/tidelog/copies.py": 1,
    "proto/tidelog/v1/controller.proto": 3,
    "proto/tidelog/v1/inspect.proto": 1,
    "services/admin-api/tidelog_admin_api/bodies/cluster_bodies.py": 2,
    "services/admin-api/tidelog_admin_api/resources/events.py": 1,
    "services/broker/tidelog_broker/log/producer_history.py": 1,
    "tests/simulation/README.md": 1,
    "tests/simulation/loop.py": 1,
}


def pattern(spellings: dict[str, str]) -> re.Pattern[str]:
    """The end of a word, or of a sign, follows the spelling."""
    return re.compile(rf"(?:{'|'.join(spellings)})(?!\w)")
