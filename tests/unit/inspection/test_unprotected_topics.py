"""Topics with a single replica are named by every interface, and are no fault."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from tidelog.cli.explain import is_well
from tidelog.inspection import unprotected_topics as module
from tidelog.inspection.explain import explain
from tidelog.inspection.explain.observation import TopicFactor, TopicFactors
from tidelog.inspection.explain.single_replicas import single_replicas
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog.inspection.unprotected_topics import creation_warning, unprotected_topics
from unit.inspection.explain.described import DescribedCluster


def test_examples_in_docstrings_hold() -> None:
    tried = doctest.testmod(module)
    assert (tried.attempted, tried.failed) == (3, 0)


def test_only_users_topics_with_one_replica_are_unprotected() -> None:
    factors = {"sea": 1, "bay": 1, "lake": 2, "__state_changes": 1}
    topics = [TopicFactor(*topic) for topic in factors.items()]
    assert unprotected_topics(topics) == ["bay", "sea"]


@pytest.mark.parametrize(
    ("brokers", "step"),
    [
        (1, "(tidelog brokers add), then: tidelog topics set-replication-factor sea -r 3"),
        (2, "To protect it: tidelog topics set-replication-factor sea -r 2"),
        (5, "To protect it: tidelog topics set-replication-factor sea -r 3"),
    ],
)
def test_the_warning_of_a_creation_says_what_protects_the_topic(brokers: int, step: str) -> None:
    warning = creation_warning("sea", brokers)
    assert warning.startswith("Topic sea is unprotected: ")
    assert warning.endswith(step)
    assert ("the cluster has one broker" in warning) == (brokers == 1)


def noted(*topics: str, brokers: int = 3) -> Finding:
    factors = [TopicFactor(topic, 1) for topic in topics]
    (finding,) = single_replicas(TopicFactors(factors, brokers))
    return finding


def test_unprotected_topics_are_one_note_and_the_cluster_is_well() -> None:
    finding = noted("bay", "sea")
    assert (finding.cause, finding.severity, finding.topic) == ("single_replica", "info", "")
    assert "2 topics are unprotected" in finding.summary
    assert is_well(Explanation((finding,)))


def test_the_note_ends_with_the_command_that_protects() -> None:
    assert noted("bay", "sea").next_step == (
        "To protect: tidelog topics set-replication-factor bay sea -r 3."
    )


def test_of_many_topics_the_first_are_named_and_the_rest_is_counted() -> None:
    finding = noted(*(f"topic-{number:02}" for number in range(12)))
    assert "topic-04 -r 3. The same for 7 more" in finding.next_step
    assert "topic-05" not in finding.next_step


def test_on_one_broker_the_note_says_so() -> None:
    finding = noted("sea", brokers=1)
    assert finding.topic == "sea"
    assert "the cluster has one broker" in finding.evidence
    assert finding.next_step.startswith("Start more brokers and add them (")


def test_the_note_comes_after_every_other_finding() -> None:
    cluster = DescribedCluster()
    cluster.kill(2)
    observed = replace(cluster.observed(), topics=TopicFactors([TopicFactor("sea", 1)], 3))
    found = explain(observed)
    assert len(found) > 1
    assert found[-1].cause == "single_replica"


@pytest.mark.parametrize("topics", [None, TopicFactors([TopicFactor("sea", 2)], 3)])
def test_without_unprotected_topics_nothing_is_noted(topics: TopicFactors | None) -> None:
    assert list(single_replicas(topics)) == []
