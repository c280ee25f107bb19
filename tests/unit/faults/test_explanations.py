"""Which faults count as unexplained, and which findings as misblamed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faults.catalogue import KINDS, Ability
from faults.explanations import ExplainVerdict, TimedExplanation, judge_explanations
from faults.explicable import BLAMING, EXPLICABLE, LASTING
from faults.gaps import Window
from faults.injected import DoneStep, InjectedFault, Strike
from faults.plan import Fault, Step
from faults.result import Result
from faults.verdict import judge_runs
from tidelog.inspection.explain import causes
from tidelog.inspection.state_reports import Finding
from unit.faults.runs import report, run, seen

BEGIN_MS = 10_000
# Longer than every grace period and than the longest answer.
HEALED_MS = 27_000
WINDOW = Window(BEGIN_MS, 31_000)
EXPECTED_KINDS = [kind for kind, explicable in EXPLICABLE.items() if explicable.expected]


def finding(
    cause: str,
    broker: int = 1,
    *,
    severity: str = causes.WARNING,
    evidence: Sequence[str] = (),
    summary: str = "",
) -> Finding:
    message = summary or f"broker {broker}: {cause}"
    return Finding(cause, severity, message, evidence, "", broker=broker)


def explanation(at_ms: int, *findings: Finding, problem: str = "") -> TimedExplanation:
    return TimedExplanation(at_ms, at_ms + 200, findings, problem)


def every_second(*findings: Finding, since_ms: int = BEGIN_MS) -> list[TimedExplanation]:
    return [explanation(ms, *findings) for ms in range(since_ms, WINDOW.end_ms - 500, 1_000)]


SECOND = "10.0.0.9:7500"
OF_SECOND = f"the other process: at {SECOND}, data directory /d (7f) on south"


def struck(
    kind: str, *, target: str = "", end_ms: int = HEALED_MS, window: Window = WINDOW
) -> DoneStep:
    second = f", at {SECOND}" if KINDS[kind].needs is Ability.SECOND else ""
    target = target or f"broker-1{second}"
    strike = Strike(target, window.begin_ms, end_ms, seen(kind), Window(window.begin_ms, end_ms))
    return DoneStep(Step(kind, (Fault(kind, 0, 4),)), [InjectedFault(kind, 1, [strike])], window, 1)


def right(kind: str) -> list[Finding]:
    return [
        finding(min(e.causes), evidence=[OF_SECOND] if e.names_second else [])
        for e in EXPLICABLE[kind].expected
    ]


def counts(explained: ExplainVerdict, kind: str) -> dict[str, int]:
    return dict(explained.counts[kind])


@pytest.mark.parametrize("kind", EXPECTED_KINDS)
def test_without_findings_each_kind_is_unexplained(kind: str) -> None:
    explained = judge_explanations(every_second(), [struck(kind)])

    assert counts(explained, kind) == {"unexplained": 1}
    assert explained.unexplained[0].reported == "all is well"
    assert kind in explained.problems[0]


@pytest.mark.parametrize("kind", EXPECTED_KINDS)
def test_a_finding_of_the_cause_explains_each_kind(kind: str) -> None:
    explained = judge_explanations(every_second(*right(kind)), [struck(kind)])

    assert counts(explained, kind) == {"explained": 1}
    assert explained.problems == []


@pytest.mark.parametrize("kind", EXPECTED_KINDS)
def test_the_right_cause_at_another_broker_explains_only_faults_without_a_broker(kind: str) -> None:
    elsewhere = [finding(found.cause, 2) for found in right(kind)]
    explained = judge_explanations(every_second(*elsewhere), [struck(kind)])

    names_broker = any(expected.names_broker for expected in EXPLICABLE[kind].expected)
    assert len(explained.unexplained) == (
        sum(expected.names_broker for expected in EXPLICABLE[kind].expected)
    )
    assert bool(explained.unexplained) == names_broker


@pytest.mark.parametrize("kind", EXPECTED_KINDS)
def test_without_an_answer_each_kind_is_unexplained(kind: str) -> None:
    unanswered = [replace(asked, problem="nobody answers") for asked in every_second()]

    for each in (unanswered, []):
        assert judge_explanations(each, [struck(kind)]).unexplained


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not EXPLICABLE[kind].expected])
def test_invisible_faults_need_no_explanation_and_have_a_reason(kind: str) -> None:
    assert counts(judge_explanations(every_second(), [struck(kind)]), kind) == {"nothing": 1}
    assert EXPLICABLE[kind].nothing


def test_a_fault_that_ends_within_its_grace_needs_no_explanation() -> None:
    short = struck("kill_leader", end_ms=BEGIN_MS + 2_100)

    assert counts(judge_explanations(every_second(), [short]), "kill_leader") == {"too_short": 1}


def test_a_short_fault_explained_within_its_grace_counts() -> None:
    short = struck("kill_leader", end_ms=BEGIN_MS + 2_100)
    explanations = [explanation(BEGIN_MS + 800, *right("kill_leader"))]

    assert counts(judge_explanations(explanations, [short]), "kill_leader") == {"explained": 1}


def test_a_full_proof_needs_explanations_of_each_lasting_kind() -> None:
    short = [struck(kind, end_ms=BEGIN_MS + 1_000) for kind in ("kill_leader", "delay_services")]
    short += [struck("restart_all_brokers", end_ms=BEGIN_MS + 1_000)]
    result = Result(judge_runs([run(short, report())]))
    missing = [p for p in result.problems(is_full=True) if "never long enough" in p]

    assert missing == ["kill_leader came, and never long enough to be explained"]
    assert not any("never long" in problem for problem in result.problems(is_full=False))


def test_each_explanation_after_the_grace_must_name_the_cause() -> None:
    explanations = [*every_second(*right("kill_leader"))]
    explanations[8] = explanation(explanations[8].requested_ms, finding(causes.BROKER_STOPPED))
    [unexplained] = judge_explanations(explanations, [struck("kill_leader")]).unexplained

    assert unexplained.after_s == 8.0
    assert "broker_stopped" in unexplained.reported


def test_an_explanation_within_the_grace_may_be_empty() -> None:
    explanations = [
        explanation(BEGIN_MS + 500),
        *every_second(*right("kill_leader"), since_ms=BEGIN_MS + 1_500),
    ]

    assert judge_explanations(explanations, [struck("kill_leader")]).problems == []


def test_one_explanation_suffices_for_a_lasting_fault() -> None:
    explanations = [
        *every_second(),
        explanation(WINDOW.end_ms - 400, *right("start_second_process")),
    ]

    assert judge_explanations(explanations, [struck("start_second_process")]).problems == []


@pytest.mark.parametrize(("again", "explains"), [("12:00:05Z", False), ("12:09:00Z", True)])
def test_an_explanation_before_the_strike_does_not_count(again: str, explains: bool) -> None:
    def contested(at: str, ago: str) -> Finding:
        message = f"the other process: at {SECOND}, at {at} ({ago} ago): belongs to another"
        return finding(causes.BROKER_ID_CONTESTED, evidence=[message])

    before = explanation(BEGIN_MS - 1_000, contested("12:00:05Z", "4.2 s"))
    after = every_second(contested(again, "1 min 3 s"))
    earlier = struck("start_second_process", window=Window(1_000, 9_500), end_ms=4_000)
    explained = judge_explanations([before, *after], [earlier, struck("start_second_process")])

    assert len(explained.unexplained) == (0 if explains else 1)


SECOND_KINDS = [kind for kind, known in KINDS.items() if known.needs is Ability.SECOND]


@pytest.mark.parametrize("kind", SECOND_KINDS)
@pytest.mark.parametrize("other", ["10.0.0.9:75001", "110.0.0.9:7500", "10.0.0.8:7500"])
def test_a_finding_must_name_the_second_process(kind: str, other: str) -> None:
    unnamed = [
        replace(found, evidence=[line.replace(SECOND, other) for line in found.evidence])
        for found in right(kind)
    ]

    assert judge_explanations(every_second(*unnamed), [struck(kind)]).unexplained


def copied_and_killed(killed: str, *findings: Finding) -> ExplainVerdict:
    """A copy is started beside broker 1, and another fault of the step ends a broker."""
    copied = struck("start_copied_process")
    kill = struck("kill_leader", target=killed, end_ms=BEGIN_MS + 2_100)
    step = replace(copied, faults=[*copied.faults, *kill.faults])
    return judge_explanations(every_second(*findings), [step])


def taken_over(place: str) -> Finding:
    return finding(
        causes.DIRECTORY_NOT_INTACT,
        severity=causes.INFO,
        evidence=[f"registered in epoch 17: at {place}, data directory /d (7f) on south"],
    )


def test_a_copy_that_registered_when_the_broker_was_killed_needs_no_finding() -> None:
    explained = copied_and_killed("broker-1", taken_over(SECOND))

    assert counts(explained, "start_copied_process") == {"explained": 1}


@pytest.mark.parametrize(("killed", "place"), [("broker-2", SECOND), ("broker-1", "10.0.0.1:7500")])
def test_a_registration_of_a_live_broker_or_of_the_original_directory_is_no_excuse(
    killed: str, place: str
) -> None:
    """A copy that took the id from a live broker would be a bug of the product."""
    explained = copied_and_killed(killed, taken_over(place))

    assert counts(explained, "start_copied_process") == {"unexplained": 1}


@pytest.mark.parametrize("cause", sorted(BLAMING))
def test_a_finding_on_an_unaffected_broker_is_misblame(cause: str) -> None:
    found = judge_explanations(
        every_second(*right("kill_leader"), finding(cause, 2)), [struck("kill_leader")]
    )

    assert len(found.misblamed) == 1
    assert f"broker 2: {cause}" in found.problems[0]


def test_faults_of_clients_affect_no_broker() -> None:
    explanations = every_second(finding(causes.BROKER_UNREACHABLE))

    assert len(judge_explanations(explanations, [struck("cut_off_clients")]).misblamed) == 1


def test_notes_and_symptoms_are_not_misblame() -> None:
    note = finding(causes.REPLICA_CATCHING_UP, 2, severity=causes.INFO)
    symptom = finding(causes.UNDER_MIN_ISR, 2)
    explanations = every_second(*right("kill_leader"), note, symptom)

    assert judge_explanations(explanations, [struck("kill_leader")]).misblamed == []


def test_a_finding_without_a_fault_in_force_is_misblame() -> None:
    explanations = [
        explanation(2_000, finding(causes.REPLICA_DEAD)),
        *every_second(*right("kill_leader")),
    ]
    [misblamed] = judge_explanations(explanations, [struck("kill_leader")]).misblamed

    assert misblamed.step == ""


@pytest.mark.parametrize("cause", sorted(LASTING))
def test_a_lasting_finding_after_its_fault_is_not_misblame(cause: str) -> None:
    earlier = struck("start_second_process", window=Window(1_000, 9_000), end_ms=4_000)
    later = struck("kill_leader", target="broker-2")
    explanations = [
        explanation(2_000, finding(cause)),
        *every_second(finding(causes.REPLICA_DEAD, 2), finding(cause)),
    ]

    assert judge_explanations(explanations, [earlier, later]).misblamed == []


@pytest.mark.parametrize("cause", [*sorted(LASTING), causes.REPLICA_DEAD])
def test_only_lasting_findings_may_come_from_an_earlier_run(cause: str) -> None:
    earlier = struck("start_second_process", window=Window(1_000, 9_000), end_ms=4_000)
    later = struck("kill_leader", target="broker-2")
    explanations = every_second(finding(causes.REPLICA_DEAD, 2), finding(cause))

    misblamed = judge_explanations(explanations, [later], [earlier]).misblamed

    assert (not misblamed) == (cause in LASTING)
    assert judge_explanations(explanations, [later]).misblamed


def test_a_cut_link_affects_both_ends() -> None:
    cut = finding(causes.REPLICA_CUT_OFF, 3, evidence=["broker-3 cannot fetch from broker 1"])
    other = finding(causes.REPLICA_CUT_OFF, 3, evidence=["broker-3 cannot fetch from broker 2"])
    steps = [struck("cut_leader_from_etcd")]
    well = right("cut_leader_from_etcd")

    assert judge_explanations(every_second(*well, cut), steps).misblamed == []
    assert len(judge_explanations(every_second(*well, other), steps).misblamed) == 1


def test_faults_of_the_store_affect_all_brokers() -> None:
    of_one = finding(causes.STORE_UNREACHABLE, 2)

    step = struck("kill_all_etcd", target="all of etcd")
    assert judge_explanations(every_second(of_one), [step]).misblamed == []


@pytest.mark.parametrize(("starved_ms", "misblamed"), [(25_500, 0), (45_000, 1)])
def test_a_broker_without_cpu_counts_as_affected(starved_ms: int, misblamed: int) -> None:
    blamed = explanation(
        BEGIN_MS + 2_000, *right("kill_leader"), finding(causes.BROKER_UNREACHABLE, 2)
    )
    starved = explanation(starved_ms, finding(causes.CPU_STARVED, 2))
    found = judge_explanations([blamed, starved], [struck("kill_leader")])

    assert len(found.misblamed) == misblamed


def test_unexplained_and_misblamed_faults_fail_the_run_and_are_counted() -> None:
    steps = [struck("kill_leader")]
    requested = every_second(finding(causes.REPLICA_DEAD, 2))
    result = Result(judge_runs([replace(run(steps, report()), explanations=requested)]))
    reported = result.as_json()

    assert (reported["unexplained"], reported["misblamed"]) == (1, 1)
    assert reported["explanations"] == {"kill_leader": {"unexplained": 1}}
    assert len(result.problems(is_full=False)) == 2
    assert reported["wrong_explanations"] == result.problems(is_full=False)
