import pytest

from simulation.store_rules import ADDED_AGAIN
from tidelog.model import NO_LEADER
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    STOPPING,
    Member,
    RecoveryConsent,
    encode,
)
from unit.simulation.planting import (
    KEYS,
    NAME,
    PARTITION,
    TOPIC_ID,
    A,
    B,
    C,
    Store,
    finds,
    registration,
    state,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    store.write(state())
    return store


def test_valid_writes_are_no_violation(store: Store) -> None:
    store.write(state(isr=(A, B)))
    store.write(state(isr=(A,), eligible=(B,)))
    store.write(state(leader=NO_LEADER, epoch=6, isr=(A,), eligible=(B,)))
    incarnation = store.register(2, whole_since=B.broker_epoch)
    store.write(state(leader=2, epoch=7, isr=(Member(2, incarnation),), eligible=(A,)))
    store.write(state(leader=2, epoch=7, isr=(Member(2, incarnation), C)))
    assert store.rules.seen == {"left without a leader": 1, "elected from the eligible set": 1}


def test_a_leader_outside_its_isr_is_found(store: Store) -> None:
    with finds("leader_not_in_isr"):
        store.write(state(leader=1, epoch=6, isr=(B, C)))


def test_a_member_of_both_sets_is_found(store: Store) -> None:
    with finds("members_not_replicas"):
        store.write(state(isr=(A,), eligible=(A, B)))


def test_a_decreasing_epoch_is_found(store: Store) -> None:
    with finds("leader_epoch_fell"):
        store.write(state(epoch=4))


def test_another_leader_in_the_same_epoch_is_found(store: Store) -> None:
    with finds("leader_changed_within_epoch"):
        store.write(state(leader=2))


def test_another_incarnation_of_the_leader_in_the_same_epoch_is_found(store: Store) -> None:
    incarnation = store.register(1, whole_since=A.broker_epoch)
    with finds("leader_changed_within_epoch"):
        store.write(state(isr=(Member(1, incarnation), B, C)))


def test_an_admission_of_a_departed_broker_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    store.delete(KEYS.broker(3))
    with finds("joiner_not_running"):
        store.write(state())


def test_an_admission_of_a_stopping_broker_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    store.put(KEYS.broker(3), encode(registration(where=STOPPING)), C.broker_epoch)
    with finds("joiner_not_running"):
        store.write(state())


def test_an_admission_of_a_previous_incarnation_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    store.delete(KEYS.broker(3))
    store.register(3, whole_since=C.broker_epoch)
    with finds("joiner_not_running"):
        store.write(state())


def test_a_registration_written_over_another_is_found(store: Store) -> None:
    with finds("registration_overwritten"):
        store.put(KEYS.broker(2), encode(registration()), B.broker_epoch)


def test_an_eligible_set_that_omits_a_member_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    with finds("eligible_set"):
        store.write(state(isr=(A,)))


def test_an_eligible_set_beside_a_large_enough_isr_is_found(store: Store) -> None:
    with finds("eligible_set"):
        store.write(state(isr=(A, B), eligible=(C,)))


def test_an_eligible_set_that_remains_after_a_full_isr_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    store.write(state(isr=(A,), eligible=(B,)))
    with finds("eligible_set"):
        store.write(state(isr=(A, C), eligible=(B,)))


def test_an_election_by_a_deposed_controller_is_found(store: Store) -> None:
    store.put(KEYS.controller_epoch, b"8")
    with finds("deposed_controller_wrote"):
        store.write(state(leader=2, epoch=6))


def test_a_reused_controller_epoch_is_found(store: Store) -> None:
    with finds("controller_epoch_fell"):
        store.put(KEYS.controller_epoch, b"7")


def test_an_unmarked_leader_that_is_not_intact_is_found(store: Store) -> None:
    incarnation = store.register(2)
    with finds("elected_not_whole"):
        store.write(state(leader=2, epoch=6, isr=(Member(2, incarnation), C)))


def test_a_leader_from_outside_both_sets_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    with finds("elected_not_whole"):
        store.write(state(leader=3, epoch=6, isr=(B, C)))


def test_a_leader_that_resigned_is_not_elected_as_clean(store: Store) -> None:
    store.write(state(isr=(A, Member(2, NOT_WHOLE), C)))
    with finds("elected_not_whole"):
        store.write(state(leader=2, epoch=6, isr=(B, C)))


def test_an_unclean_election_beside_an_intact_member_is_found(store: Store) -> None:
    store.write(state(isr=(A, B)))
    with finds("unclean_without_need"):
        store.write(state(leader=3, epoch=6, isr=(C,), unclean=6))


def test_an_unclean_election_after_all_were_lost_is_allowed(store: Store) -> None:
    lives = {broker_id: store.register(broker_id) for broker_id in (1, 2, 3)}
    store.write(state(leader=NO_LEADER, epoch=6))
    store.write(state(leader=3, epoch=7, isr=(Member(3, lives[3]),), unclean=7))
    assert store.rules.seen["elected after loss"] == 1


def consent(store: Store, *, live: bool = False) -> None:
    store.put(KEYS.recovery(NAME), encode(RecoveryConsent(TOPIC_ID, from_live_replicas=live)))


def all_lost(store: Store) -> Member:
    """All have returned, none intact, and no broker leads. Returns the incarnation of broker 3."""
    lives = {broker_id: store.register(broker_id) for broker_id in (1, 2, 3)}
    store.write(state(leader=NO_LEADER, epoch=6))
    return Member(3, lives[3])


def test_a_manual_recovery_without_consent_is_found(store: Store) -> None:
    store.configure(recovery="manual")
    incarnation = all_lost(store)
    with finds("recovered_without_consent"):
        store.write(state(leader=3, epoch=7, isr=(incarnation,), unclean=7))


def test_a_consent_permits_one_recovery(store: Store) -> None:
    store.configure(recovery="manual")
    incarnation = all_lost(store)
    consent(store)
    store.write(state(leader=3, epoch=7, isr=(incarnation,), unclean=7))
    assert store.rules.seen["recovered by consent"] == 1
    store.write(state(leader=NO_LEADER, epoch=8, isr=(incarnation,), unclean=7))
    again = Member(3, store.register(3))
    with finds("recovered_without_consent"):
        store.write(state(leader=3, epoch=9, isr=(again,), unclean=9))


def test_a_consent_that_ends_without_an_election_permits_none(store: Store) -> None:
    store.configure(recovery="manual")
    incarnation = all_lost(store)
    consent(store)
    store.delete(KEYS.recovery(NAME))
    assert store.rules.seen["consent not needed after all"] == 1
    with finds("recovered_without_consent"):
        store.write(state(leader=3, epoch=7, isr=(incarnation,), unclean=7))


def test_a_consent_for_a_partition_with_a_leader_is_found(store: Store) -> None:
    with finds("consent_to_led_partition"):
        consent(store)


def test_a_recovery_without_all_last_known_members_is_found(store: Store) -> None:
    store.delete(KEYS.broker(1))
    incarnation = Member(3, store.register(3))
    store.write(state(leader=NO_LEADER, epoch=6, isr=(A,), eligible=(B, C)))
    store.register(2)
    with finds("recovered_without_member"):
        store.write(state(leader=3, epoch=7, isr=(incarnation,), unclean=7))


def test_an_administrator_may_give_up_absent_members(store: Store) -> None:
    store.delete(KEYS.broker(1))
    incarnation = Member(3, store.register(3))
    store.write(state(leader=NO_LEADER, epoch=6, isr=(A,), eligible=(B, C)))
    store.register(2)
    consent(store, live=True)
    store.write(state(leader=3, epoch=7, isr=(incarnation,), unclean=7))
    assert store.rules.permits_loss(PARTITION, 7)


def test_a_topic_in_deletion_forgets_its_members(store: Store) -> None:
    store.delete_topic()
    store.write(state(leader=NO_LEADER, epoch=6, isr=()))


def test_a_partition_removed_from_a_remaining_topic_forgets_its_members(
    store: Store,
) -> None:
    store.shrink()
    store.write(state(leader=NO_LEADER, epoch=6, isr=()))


def test_a_recreated_partition_begins_beyond_the_removed_one(store: Store) -> None:
    store.remove_partition(last_epoch=6)
    store.write(state(epoch=7))
    assert store.rules.first_epochs == {PARTITION: [7]}
    assert store.rules.seen[ADDED_AGAIN] == 1


@pytest.mark.parametrize("epoch", [0, 6])
def test_a_recreated_partition_with_reused_epochs_is_found(store: Store, epoch: int) -> None:
    store.remove_partition(last_epoch=6)
    with finds("epochs_begin_again"):
        store.write(state(epoch=epoch))


def test_members_are_kept_without_a_deletion(store: Store) -> None:
    with finds("eligible_set"):
        store.write(state(leader=NO_LEADER, epoch=6, isr=()))
