"""How a fault comes several times: one after another, each to a cluster that is whole."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from faults import nemesis
from faults.effects import Measures
from faults.load import now_ms
from faults.plan import Fault
from faults.scene import Scene
from faults.verdict import InjectedFault
from tidelog.history import HistoryWriter


class Killed:
    """Whom it strikes next, in what order, until when the cluster becomes whole."""

    def __init__(self, targets: Sequence[str], whole_times: int) -> None:
        self.did: list[str] = []
        self._targets = iter(targets)
        self._whole_times = whole_times
        self.target = ""

    async def strike(self, _: Scene) -> "Killed":
        self.target = next(self._targets)
        self.did.append(self.target)
        return self

    async def measured(self) -> Measures:
        return {"lives_ended": 1}

    async def heal(self) -> None:
        self.did.append("healed")

    def release(self) -> None:
        pass

    async def until_whole(self, timeout_s: float) -> tuple[float | None, list[str]]:
        self._whole_times -= 1
        self.did.append("whole" if self._whole_times >= 0 else f"waited {timeout_s:g} s")
        return (1.0, []) if self._whole_times >= 0 else (None, ["broker-1 is not registered"])


async def injected(
    killed: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> InjectedFault:
    monkeypatch.setattr(nemesis, "BOUNCE_PAUSE_S", 0)
    monkeypatch.setattr(nemesis, "INJECT", {"kill_leader": killed.strike})
    with HistoryWriter(tmp_path / "history") as history:
        return await nemesis.inject(
            killed,  # type: ignore[arg-type]
            Fault("kill_leader", 0.0, 0.0, 3),
            now_ms(),
            history,
            lambda _: None,
        )


async def test_a_fault_comes_again_once_the_cluster_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1", "broker-2"], whole_times=2)

    fault = await injected(killed, tmp_path, monkeypatch)

    struck = ["broker-2", "healed", "whole", "broker-1", "healed", "whole", "broker-2", "healed"]
    assert killed.did == struck
    assert fault.lacks == []


async def test_each_time_has_its_own_target_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1", "broker-2"], whole_times=2)

    fault = await injected(killed, tmp_path, monkeypatch)

    assert [strike.target for strike in fault.strikes] == ["broker-2", "broker-1", "broker-2"]
    times = [ms for strike in fault.strikes for ms in (strike.begin_ms, strike.end_ms)]
    assert times == sorted(times)
    assert fault.target == "broker-2; broker-1"


async def test_a_cluster_that_does_not_become_whole_is_not_struck_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(["broker-2", "broker-1"], whole_times=0)

    fault = await injected(killed, tmp_path, monkeypatch)

    assert killed.did == ["broker-2", "healed", "waited 60 s"]
    assert len(fault.strikes) == 1
    assert fault.lacks
