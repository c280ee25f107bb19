"""The amount of work: the full form, and the quick one of two minutes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from bench.options import CUSTOM


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `matrix`: whether to measure all cases of producing, or only a diagonal through them.
    - `repeats`: how often each value is measured, in turn with another one.
    - `..._s`: the duration of one measurement; `settle_s`: until written data are on the disk.
    - `read_mb`: the size of the backlog that consumers read.
    - `rates`: records per second of open loops.
    - `sizes`, `alone_sizes`: numbers of partitions of real clusters, and of a controller alone.
    - `profile`: whether py-spy samples each step of these clusters into out/profiles, which slows
      them down.
    """

    matrix: bool
    repeats: int
    produce_s: float
    ceiling_s: float
    read_mb: int
    one_in_flight_s: float
    open_loop_s: float
    rates: tuple[int, ...]
    in_flight_s: float
    sizes: tuple[int, ...]
    settle_s: float
    idle_s: float
    scrapes: int
    alone_sizes: tuple[int, ...]
    profile: bool = False


FULL = Settings(
    matrix=True,
    repeats=5,
    produce_s=3.0,
    ceiling_s=1.0,
    read_mb=1_500,
    one_in_flight_s=15.0,
    open_loop_s=20.0,
    rates=(100, 1_000, 3_000, 10_000),
    in_flight_s=5.0,
    sizes=(1_000, 3_000, 10_000),
    settle_s=40.0,
    idle_s=30.0,
    scrapes=10,
    alone_sizes=(10_000, 30_000, 100_000),
)
QUICK = Settings(
    matrix=False,
    repeats=1,
    produce_s=0.8,
    ceiling_s=0.4,
    read_mb=150,
    one_in_flight_s=1.5,
    open_loop_s=2.0,
    rates=(100, 1_000),
    in_flight_s=0.6,
    sizes=(300,),
    settle_s=1.0,
    idle_s=3.0,
    scrapes=3,
    alone_sizes=(1_000, 3_000, 9_000),
)
FULL_FORM, QUICK_FORM = "full", "quick"

# The parts by name, in the order in which they run. The quick form leaves the last ones out.
ON_ONE_CLUSTER = ("throughput", "reading", "latency", "durability")
SCALE_PARTS = ("scale", "alone")
SLOW_PARTS = ("restart", "rolling", "history")
PARTS = (*ON_ONE_CLUSTER, *SCALE_PARTS, *SLOW_PARTS)


def parts_of(form: str, requested: Sequence[str]) -> tuple[str, ...]:
    """Returns the requested parts in their order; none requested: all parts of the form."""
    if requested:
        return tuple(part for part in PARTS if part in requested)
    return PARTS if form == FULL_FORM else (*ON_ONE_CLUSTER, *SCALE_PARTS)


def chosen(form: str, given: Mapping[str, object]) -> tuple[str, Settings]:
    """Returns the form and its settings. Raises `ValueError` for invalid ones.

    - `given`: the settings that differ from the form; None: as in the form.
    """
    defaults = FULL if form == FULL_FORM else QUICK
    changed = {name: value for name, value in given.items() if value is not None}
    for name, value in changed.items():
        if isinstance(value, bool):
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or any(number <= 0 for number in numbers):
            raise ValueError(f"--{name.replace('_', '-')} is {value}; it must be above 0")
    settings = replace(defaults, **changed)  # type: ignore[arg-type]
    return (form if settings == defaults else CUSTOM), settings


def as_json(settings: Settings) -> dict[str, object]:
    return asdict(settings)


def tuple_fields() -> set[str]:
    """Returns the names of the settings with several numbers."""
    return {name for name, defaults in as_json(FULL).items() if isinstance(defaults, tuple)}
