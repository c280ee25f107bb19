from tidelog.state_changes.event import Cause
from tidelog_broker.membership.change_ids import ChangeIds


class At:
    def __init__(self) -> None:
        self.epoch = 7

    def monotonic_ms(self) -> int:
        raise AssertionError

    def wall_ms(self) -> int:
        return 1_000


def test_a_change_id_has_broker_incarnation_and_number() -> None:
    at = At()
    ids = ChangeIds(2, lambda: at.epoch, at)
    assert [ids.next(Cause.LAG_TIME).id for _ in range(2)] == ["b2-7-1", "b2-7-2"]


def test_a_change_has_its_cause_and_its_start() -> None:
    change = ChangeIds(2, lambda: 7, At()).next(Cause.LAG_TIME)
    assert (change.cause, change.requested_at_ms) == (Cause.LAG_TIME, 1_000)


def test_another_incarnation_has_other_ids() -> None:
    at = At()
    ids = ChangeIds(2, lambda: at.epoch, at)
    ids.next(Cause.NONE)
    at.epoch = 9
    assert ids.next(Cause.NONE).id == "b2-9-2"
