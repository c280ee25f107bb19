"""Properties of every election, for all states of brokers and logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_controller.policies.electability import ElectionRules, LiveBroker, is_intact
from tidelog_controller.policies.leader_election import next_state
from tidelog_controller.policies.recovery import Logs
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr, Member, Moving, RecoveryConsent
from tidelog_runtime.replica_control import ReplicaSummary

BROKERS = (1, 2, 3, 4)


@st.composite
def incarnations(draw: st.DrawFn) -> dict[int, LiveBroker]:
    live = {}
    for broker_id in BROKERS:
        if draw(st.booleans()):
            epoch = draw(st.integers(1, 5))
            whole = st.integers(1, epoch)
            live[broker_id] = LiveBroker(epoch, draw(st.booleans()), draw(whole), draw(whole))
    return live


@st.composite
def states(draw: st.DrawFn) -> LeaderAndIsr:
    """Any state that keeps the invariants of `LeaderAndIsr`."""
    replicas = tuple(draw(st.permutations(BROKERS)))[: draw(st.integers(1, 4))]
    leader_epoch = draw(st.integers(NO_EPOCH, 3))
    min_isr = draw(st.integers(1, 3))
    members = [Member(b, draw(st.integers(NOT_WHOLE, 5))) for b in replicas]
    count = draw(st.integers(1, len(members))) if leader_epoch != NO_EPOCH else 0
    isr, rest = members[:count], members[count:]
    few = leader_epoch != NO_EPOCH and count < min_isr
    eligible = [m for m in rest if draw(st.booleans())] if few else []
    cut = draw(st.integers(1, len(replicas)))
    moving = Moving("op", replicas[:cut], replicas[cut - 1 :]) if draw(st.booleans()) else None
    leaders = st.sampled_from([NO_LEADER, *(m.broker_id for m in isr)])
    return LeaderAndIsr(
        topic_id="id",
        replicas=replicas,
        controller_epoch=1,
        leader=draw(leaders),
        leader_epoch=leader_epoch,
        isr=tuple(sorted(isr)),
        eligible=tuple(sorted(eligible)),
        min_isr=min_isr,
        moving=moving,
    )


@st.composite
def summaries(draw: st.DrawFn) -> ReplicaSummary | None:
    if draw(st.booleans()):
        return None
    starts = sorted(draw(st.dictionaries(st.integers(0, 3), st.integers(0, 5))).items())
    epochs = tuple((e, i) for i, (e, _) in enumerate(starts))
    return ReplicaSummary("id", 0, 9, 0, draw(st.integers(len(epochs), 9)), epochs)


RULES = st.builds(
    ElectionRules,
    synced=st.booleans(),
    recovery=st.sampled_from(["balanced", "manual"]),
    unclean_leader_election=st.booleans(),
)
CONSENTS = st.none() | st.builds(RecoveryConsent, st.sampled_from(["id", "other"]), st.booleans())
LOGS = st.dictionaries(st.sampled_from(BROKERS), summaries())


@pytest.mark.rule("every-write-sets-eligible-set")
@given(states(), incarnations(), RULES, LOGS, CONSENTS)
def test_every_written_state_keeps_the_invariants(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    rules: ElectionRules,
    logs: Logs,
    consent: RecoveryConsent | None,
) -> None:
    new = next_state(state, live, 2, rules, logs=logs, consent=consent)
    if new is None:
        return
    assert new != state
    assert (new.replicas, new.moving) == (state.replicas, state.moving)
    eligible = {member.broker_id for member in new.eligible}
    assert not eligible & new.isr_ids
    assert eligible | new.isr_ids <= set(new.replicas)
    assert len(new.isr) < new.min_isr or not eligible
    if new.leader == NO_LEADER:
        assert (new.isr, new.eligible) == (state.isr, state.eligible)
    else:
        assert new.leader_broker_epoch == live[new.leader].broker_epoch


@pytest.mark.rule("election-takes-new-leader-epoch")
@given(states(), incarnations(), RULES, LOGS, CONSENTS)
def test_the_leader_epoch_grows_with_every_election_and_never_otherwise(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    rules: ElectionRules,
    logs: Logs,
    consent: RecoveryConsent | None,
) -> None:
    new = next_state(state, live, 2, rules, logs=logs, consent=consent)
    if new is None:
        return
    elected = (new.leader, new.leader_broker_epoch) != (state.leader, state.leader_broker_epoch)
    assert new.leader_epoch == state.leader_epoch + (1 if elected else 0)


@given(states(), incarnations(), RULES, LOGS, CONSENTS)
def test_without_an_unclean_mark_only_a_running_intact_member_is_elected(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    rules: ElectionRules,
    logs: Logs,
    consent: RecoveryConsent | None,
) -> None:
    new = next_state(state, live, 2, rules, logs=logs, consent=consent)
    if new is None or new.leader_epoch == state.leader_epoch or new.leader == NO_LEADER:
        return
    assert live[new.leader].running
    known = {m.broker_id: m for m in (*state.isr, *state.eligible)}
    clean = [b for b, m in known.items() if live.get(b) and is_intact(m, live, rules)]
    if new.unclean_leader_epoch == new.leader_epoch:
        assert not any(live[b].running for b in clean)
        assert (len(new.isr), new.eligible) == (1, ())
    elif state.leader_epoch != NO_EPOCH:
        assert new.leader in clean
        assert new.unclean_leader_epoch == state.unclean_leader_epoch


@given(states(), incarnations(), RULES, LOGS, CONSENTS)
def test_an_election_takes_at_most_two_steps(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    rules: ElectionRules,
    logs: Logs,
    consent: RecoveryConsent | None,
) -> None:
    """One step removes the leader, one elects a replica uncleanly."""
    for _ in range(2):
        new = next_state(state, live, 2, rules, logs=logs, consent=consent)
        if new is None:
            return
        state = new
    assert next_state(state, live, 2, rules, logs=logs, consent=consent) is None
