"""A wiped, restored or replaced store is detected; a lagging one is not mistaken for that."""

from __future__ import annotations

import pytest

from tidelog_runtime.metadata.seen_revisions import SeenRevisions
from tidelog_runtime.metadata.store import StoreRolledBackError


def seen_up_to(revision: int) -> SeenRevisions:
    seen = SeenRevisions()
    seen.answered(revision, cluster_id=1, at_least=0)
    return seen


def test_answers_may_arrive_out_of_order() -> None:
    seen = seen_up_to(7)
    seen.answered(6, cluster_id=1, at_least=5)
    assert seen.highest == 7


@pytest.mark.rule("other-or-older-store-rejected")
def test_an_answer_older_than_a_revision_seen_before_the_request_is_a_rollback() -> None:
    with pytest.raises(StoreRolledBackError, match="revision 6 and was at 7"):
        seen_up_to(7).answered(6, cluster_id=1, at_least=7)


def test_a_write_at_a_revision_seen_before_is_a_rollback() -> None:
    seen_up_to(7).answered(8, cluster_id=1, at_least=7, wrote=True)
    with pytest.raises(StoreRolledBackError, match="revision 6 and was at 7"):
        seen_up_to(7).answered(7, cluster_id=1, at_least=7, wrote=True)


def test_revisions_reported_by_others_count_as_seen() -> None:
    seen = seen_up_to(7)
    seen.observe_revision(9)
    seen.observe_revision(8)
    assert seen.highest == 9


def test_a_rollback_is_not_forgotten_when_the_store_grows_again() -> None:
    seen = seen_up_to(7)
    with pytest.raises(StoreRolledBackError):
        seen.answered(2, cluster_id=1, at_least=7)
    with pytest.raises(StoreRolledBackError):
        seen.answered(100, cluster_id=1, at_least=0)
    with pytest.raises(StoreRolledBackError):
        seen.check()


def test_a_lagging_member_is_only_behind() -> None:
    seen = seen_up_to(7)
    assert seen.is_behind(6, cluster_id=1)
    assert not seen.is_behind(7, cluster_id=1)
    seen.check()


def test_another_cluster_is_never_taken_for_the_same() -> None:
    seen = seen_up_to(7)
    with pytest.raises(StoreRolledBackError, match="another etcd cluster"):
        seen.is_behind(100, cluster_id=2)
    with pytest.raises(StoreRolledBackError, match="another etcd cluster"):
        seen.check()
