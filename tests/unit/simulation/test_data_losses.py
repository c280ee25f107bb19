"""Which data directory a machine has."""

from __future__ import annotations

from simulation.data_losses import DataLosses


def test_a_restored_directory_is_the_same_and_its_replacement_is_not() -> None:
    losses = DataLosses()
    began = losses.count
    first = losses.directory_at(1, began)
    losses.contents_replaced(1)
    meanwhile = losses.directory_at(1, losses.count)
    losses.directory_put_back(1, first)
    losses.machine_lost(1)
    assert meanwhile != first
    assert losses.directory_at(1, losses.count) == first


def test_each_replacement_creates_a_separate_directory() -> None:
    losses = DataLosses()
    had = [losses.directory_at(1, losses.count)]
    for _ in range(2):
        losses.contents_replaced(1)
        had.append(losses.directory_at(1, losses.count))
    assert len(set(had)) == 3


def test_another_machine_keeps_its_own_directory() -> None:
    losses = DataLosses()
    own = losses.directory_at(2, 0)
    losses.contents_replaced(1)
    assert losses.directory_at(2, losses.count) == own
    assert losses.directory_at(1, 0) != own


def test_of_a_directory_and_its_copy_the_first_to_register_is_the_same() -> None:
    for first, second in ((1, 101), (101, 1)):
        losses = DataLosses()
        losses.registered(1)
        original = losses.directory_at(1, losses.count)
        losses.copied(1, 101)
        losses.registered(first)
        assert losses.directory_at(first, losses.count) == original
        assert losses.directory_at(second, losses.count) != original
