"""Compares acknowledged records with those read back."""

from bench.grow.ledger import Ledger, ReadBack, serial_of, value_of
from tidelog.model import NO_OFFSET


def values(*serials: int) -> list[bytes | None]:
    return [value_of(serial) for serial in serials]


def ledger_of_five() -> Ledger:
    """Serial numbers 0 to 2 are in partition 0 and 3 to 4 in partition 1, from offset 0 on."""
    ledger = Ledger(2)
    ledger.acknowledge(0, 0, ledger.take(3), 3)
    ledger.acknowledge(1, 0, ledger.take(2), 2)
    return ledger


def test_all_acknowledged_records_are_found() -> None:
    ledger = ledger_of_five()
    ledger.note_read(0, 0, values(0, 1))
    ledger.note_read(0, 2, values(2))
    ledger.note_read(1, 0, values(3, 4))

    assert ledger.read_back() == ReadBack(5, 5, lost=0, duplicates=0, unexpected=0)


def test_an_unread_record_is_lost() -> None:
    ledger = ledger_of_five()
    ledger.note_read(0, 0, values(0, 1, 2))

    assert ledger.read_back().lost == 2


def test_a_record_at_another_offset_than_acknowledged_is_lost() -> None:
    ledger = ledger_of_five()
    ledger.note_read(0, 0, values(0, 2, 1))
    ledger.note_read(1, 0, values(3, 4))

    assert ledger.read_back() == ReadBack(5, 5, lost=2, duplicates=0, unexpected=0)


def test_another_value_is_a_lost_record() -> None:
    ledger = ledger_of_five()
    ledger.note_read(1, 0, [None, value_of(4)[:-1] + b"\xff"])

    assert ledger.read_back().lost == 5


def test_an_offset_acknowledged_twice_has_lost_one_record() -> None:
    ledger = Ledger(1)
    ledger.acknowledge(0, 0, ledger.take(1), 1)
    ledger.acknowledge(0, 0, ledger.take(1), 1)
    ledger.note_read(0, 0, values(1))

    assert ledger.read_back().lost == 1


def test_a_record_acknowledged_without_an_offset_is_found_anywhere() -> None:
    ledger = Ledger(1)
    ledger.acknowledge(0, 0, ledger.take(2), 2)
    ledger.acknowledge(0, NO_OFFSET, ledger.take(2), 2)
    ledger.note_read(0, 0, values(0, 1))
    ledger.note_read(0, 2, values(2))
    assert ledger.read_back() == ReadBack(4, 3, lost=1, duplicates=0, unexpected=0)
    ledger.note_read(0, 3, values(2))

    assert ledger.read_back() == ReadBack(4, 4, lost=1, duplicates=1, unexpected=0)


def test_a_record_read_twice_is_a_duplicate() -> None:
    ledger = ledger_of_five()
    ledger.note_read(0, 0, values(0, 1, 2))
    ledger.note_read(0, 3, values(1))
    ledger.note_read(1, 0, values(3, 4))

    assert ledger.read_back() == ReadBack(5, 6, lost=0, duplicates=1, unexpected=0)


def test_an_unacknowledged_record_may_exist() -> None:
    ledger = ledger_of_five()
    unknown = ledger.take(1)
    ledger.note_read(0, 0, values(0, 1, 2, unknown))
    ledger.note_read(1, 0, values(3, 4))

    assert ledger.read_back() == ReadBack(5, 6, lost=0, duplicates=0, unexpected=1)


def test_a_value_has_its_serial_number() -> None:
    assert serial_of(value_of(1 << 40)) == 1 << 40
    assert serial_of(b"sea") is None
