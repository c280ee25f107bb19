"""Output and exit status of `tidelog explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.explain import document, is_well, lines, parse_scope
from tidelog.cli.session import Session
from tidelog.client.cluster_explainer import NoServiceAnswersError
from tidelog.inspection.explain import Listening, SilentService, explain
from tidelog.inspection.state_reports import Explanation, Scope
from unit.inspection.explain.described import DescribedCluster

_GOLDEN = Path(__file__).parent / "golden"
FOUR = ("broker-1 at a", "broker-3 at c", "controller-1 at d", "broker-2 at b")


def explained(cluster: DescribedCluster, scope: Scope, *silent: str) -> Explanation:
    return Explanation(explain(cluster.observed(scope)), FOUR, silent)


def rendered(explanation: Explanation, scope: Scope) -> str:
    return "\n".join(lines(explanation, scope)) + "\n"


def dead_broker() -> DescribedCluster:
    cluster = DescribedCluster()
    for i in range(12):
        cluster.partition(f"sea/{i}", (1, 2, 3), isr=(1, 3))
    cluster.partition("bay/0", (1, 2), isr=(1,))
    cluster.leads("bay/0", refused_below_min_isr=7, last_refused_ms=200)
    cluster.partition("fjord/0", leader=3)
    cluster.kill(2)
    return cluster


def test_a_dead_broker_is_explained_from_cause_to_consequences_then_the_next_step() -> None:
    explanation = explained(dead_broker(), Scope(), "broker-2 at b")
    assert rendered(explanation, Scope()) == (_GOLDEN / "explain_dead_broker.txt").read_text()


def test_a_healthy_cluster_is_reported_with_the_source_of_that_answer() -> None:
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    scope = Scope("sea", 0)
    assert rendered(explained(cluster, scope), scope) == (
        "All is well with sea/0, according to 4 services.\n"
    )


def test_services_too_busy_to_answer_are_a_reported_fault() -> None:
    cluster = DescribedCluster()
    cluster.silence(2, Listening.BUSY)
    observed = replace(cluster.observed(), states=())
    silent = ("broker-2 at b",)
    explanation = Explanation(explain(observed), silent, silent, (Listening.BUSY.value,))
    assert not is_well(explanation)
    assert "1 warning finding, and no service reported the state of the cluster in time." in (
        rendered(explanation, Scope("sea", 0))
    )


def test_a_note_is_not_a_fault() -> None:
    cluster = DescribedCluster()
    cluster.partition("sea/0", leader=2)
    explanation = explained(cluster, Scope())
    assert is_well(explanation)
    assert "INFO not_preferred_leader" in rendered(explanation, Scope())


def test_a_finding_sets_the_exit_status() -> None:
    content = document(explained(dead_broker(), Scope()))
    assert content["well"] is False
    assert [f["cause"] for f in content["findings"]][:2] == [  # type: ignore[attr-defined]
        "replica_dead",
        "under_min_isr",
    ]


@pytest.mark.parametrize("target", ["sea/", "sea/x", "/3"])
def test_an_invalid_partition_is_wrong_usage(target: str) -> None:
    result = CliRunner().invoke(app, ["explain", target], obj=Session("127.0.0.1:1"))
    assert result.exit_code == ExitStatus.USAGE


def test_without_answers_the_exit_status_and_the_message_say_so() -> None:
    result = CliRunner().invoke(app, ["explain"], obj=Session("127.0.0.1:1"))
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert "127.0.0.1:1 refuses connections" in result.output
    assert "start the cluster" in result.output
    assert "tidelog trace --files" in result.output


def test_paused_processes_are_not_to_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_service_answers(*_: object, **__: object) -> Explanation:
        raise NoServiceAnswersError(
            [
                SilentService("127.0.0.1:1", Listening.ACCEPTS, "gave no answer"),
                SilentService("127.0.0.1:2", Listening.REFUSES, "gave no answer"),
            ]
        )

    monkeypatch.setattr("tidelog.client.explain_requests.explain_cluster", no_service_answers)
    result = CliRunner().invoke(app, ["explain"], obj=Session("127.0.0.1:1"))
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert "check the processes that accept connections" in result.output
    assert "start the cluster" not in result.output


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        (["broker", "2"], Scope(broker=2)),
        (["sea/3", "broker", "2"], Scope("sea", 3, 2)),
        (["broker"], Scope("broker")),
        (["broker", "broker", "2"], Scope("broker", broker=2)),
    ],
)
def test_a_broker_may_be_given_in_words(words: list[str], scope: Scope) -> None:
    assert parse_scope(words) == scope


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["broker", "x"], "'x' is not a broker id"),
        (["sea", "bay"], "give one TOPIC"),
        (["broker", "2", "--broker", "3"], "give one of them"),
        (["broker", "9999999999"], "no broker has a higher number than 2147483647"),
        (["--broker", "9999999999"], "Invalid value for '--broker'"),
        (["s\udcff/3"], r"topic 's\udcff' is no text in UTF-8"),
        (["sea/99999999999999"], "no partition has a higher number than 2147483647"),
    ],
)
def test_unknown_words_are_wrong_usage(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["explain", *words], obj=Session("127.0.0.1:1"))
    assert result.exit_code == ExitStatus.USAGE
    assert message in result.output


@pytest.mark.parametrize("timeout", ["-5", "0", "0.499", "60.1", "nan"])
def test_a_time_too_short_for_any_answer_is_wrong_usage(timeout: str) -> None:
    arguments = ["explain", f"--timeout={timeout}"]
    result = CliRunner().invoke(app, arguments, obj=Session("127.0.0.1:1"))
    assert result.exit_code == ExitStatus.USAGE
    assert "give 0.5 to 60" in result.output


@pytest.mark.parametrize(("timeout", "is_short"), [("1e9", False), ("60.1", False), ("0.1", True)])
def test_only_a_short_time_is_called_too_short(timeout: str, *, is_short: bool) -> None:
    ended = CliRunner().invoke(app, ["explain", f"--timeout={timeout}"])
    assert ended.exit_code == ExitStatus.USAGE
    assert "give 0.5 to 60" in " ".join(ended.output.split())
    assert ("a healthy service could not answer" in " ".join(ended.output.split())) == is_short
