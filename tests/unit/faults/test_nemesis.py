"""Repetitions of a fault: one after another, each on a recovered cluster."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from faults import nemesis
from faults.cluster import ClusterFailedError
from faults.effects import Measures
from faults.injected import InjectedFault, Strike
from faults.load import now_ms
from faults.plan import TRUNCATION, Fault
from faults.scene import Scene
from tidelog.history import HistoryWriter

THREE_TIMES = Fault("kill_leader", 0.0, 0.0, 3)
ONCE = Fault("kill_controller", 0.0, 0.0)


class Killed:
    """The targets of its strikes in order, and when the cluster recovers."""

    def __init__(self, targets: Sequence[str], whole_times: int) -> None:
        self.did: list[str] = []
        self._targets = iter(targets)
        self._whole_times = whole_times
        self.target = ""
        self.released = 0

    async def strike(self, _: Scene) -> "Killed":
        self.target = next(self._targets)
        self.did.append(self.target)
        return self

    async def measured(self) -> Measures:
        return {"processes_ended": 1}

    async def heal(self) -> None:
        self.did.append("healed")

    def release(self) -> None:
        self.released += 1

    async def until_whole(self, timeout_s: float) -> tuple[float | None, list[str]]:
        self._whole_times -= 1
        self.did.append("whole" if self._whole_times >= 0 else f"waited {timeout_s:g} s")
        return (1.0, []) if self._whole_times >= 0 else (None, ["broker-1 is not registered"])


class LateController:
    """Another controller becomes active at the third poll, unless the first is back before."""

    target = "controller-1"

    def __init__(self) -> None:
        self.did: list[str] = []
        self._is_other_active = False

    async def strike(self, _: Scene) -> "LateController":
        return self

    async def measured(self) -> Measures:
        self.did.append("measured")
        if self.did == ["measured"] * 3:
            self._is_other_active = True
        is_back = "healed" in self.did
        return {"processes_ended": int(is_back), "other_active": int(self._is_other_active)}

    async def heal(self) -> None:
        self.did.append("healed")

    def release(self) -> None:
        self.did.append("released")


async def injected(
    killed: "Killed | LateController", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> InjectedFault:
    monkeypatch.setattr(nemesis, "BOUNCE_PAUSE_S", 0)
    monkeypatch.setattr(nemesis, "EFFECT_POLL_S", 0)
    monkeypatch.setattr(nemesis, "INJECT", {fault.kind: killed.strike})
    with HistoryWriter(tmp_path / "history") as history:
        return await nemesis.inject(
            killed,  # type: ignore[arg-type]
            fault,
            now_ms(),
            history,
            lambda _: None,
        )


async def test_a_fault_is_repeated_after_the_cluster_has_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1", "broker-2"], whole_times=2)

    fault = await injected(killed, tmp_path, monkeypatch, THREE_TIMES)

    struck = ["broker-2", "healed", "whole", "broker-1", "healed", "whole", "broker-2", "healed"]
    assert killed.did == struck
    assert fault.lacks == []


async def test_each_repetition_has_its_own_target_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1", "broker-2"], whole_times=2)

    fault = await injected(killed, tmp_path, monkeypatch, THREE_TIMES)

    assert [strike.target for strike in fault.strikes] == ["broker-2", "broker-1", "broker-2"]
    times = [ms for strike in fault.strikes for ms in (strike.begin_ms, strike.end_ms)]
    assert times == sorted(times)
    assert fault.target == "broker-2; broker-1"


async def test_the_recovery_time_between_two_repetitions_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1", "broker-2"], whole_times=2)

    fault = await injected(killed, tmp_path, monkeypatch, THREE_TIMES)

    assert [wait_s >= 1.0 for wait_s in fault.waits_s] == [True, True]


async def test_an_unrecovered_cluster_is_not_struck_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1"], whole_times=0)

    fault = await injected(killed, tmp_path, monkeypatch, THREE_TIMES)

    assert killed.did == ["broker-2", "healed", "waited 60 s"]
    assert len(fault.strikes) == 1
    assert fault.lacks


async def test_a_fault_lasts_until_its_own_effect_was_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LateController()

    fault = await injected(late, tmp_path, monkeypatch, ONCE)

    assert late.did == ["measured", "measured", "measured", "healed", "measured", "released"]
    assert fault.lacks == []


async def test_a_fault_without_effect_is_healed_when_it_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nemesis, "LONGER_S", 0)
    monkeypatch.setattr(nemesis, "EFFECT_TIMEOUT_S", 0)
    late = LateController()

    fault = await injected(late, tmp_path, monkeypatch, ONCE)

    assert late.did == ["measured", "healed", "released"]
    assert fault.lacks


async def test_a_broker_that_a_fault_failed_to_strike_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed([], whole_times=0)

    async def strike(_: Scene) -> Killed:
        raise ClusterFailedError("all that broker-1 is to be cut off from are down")

    monkeypatch.setattr(killed, "strike", strike)
    with pytest.raises(ClusterFailedError):
        await injected(killed, tmp_path, monkeypatch, ONCE)

    assert killed.released == 1


class Log:
    """Log events of one broker about two topics, by its wall clock."""

    def __init__(self, logged: Sequence[tuple[str, int]]) -> None:
        self._logged = logged

    async def logged_ms(self, kind: str, topic: str = "") -> list[int]:
        return [at_ms for of, at_ms in self._logged if kind == "truncation" and of == topic]


@pytest.mark.parametrize(
    ("of_the_load", "logged"), [((1_000, 1_500), 1), ((1_000, 21_000), 2), ((500,), 0)]
)
async def test_truncations_under_load_are_read_after_each_isolation(
    monkeypatch: pytest.MonkeyPatch, of_the_load: Sequence[int], logged: int
) -> None:
    monkeypatch.setattr(nemesis, "wall_ahead_ms", lambda: 0)
    cuts = [
        InjectedFault("cut_leader_from_followers", 1, [Strike("broker-1", begin, begin + 9, {})])
        for begin in (900, 20_900)
    ]
    log = Log([("other", 21_000), *(("sea", at_ms) for at_ms in of_the_load)])

    assert await nemesis.logged_by_story("sea", TRUNCATION, cuts, [log]) == logged
