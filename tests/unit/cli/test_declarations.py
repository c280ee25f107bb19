"""Files of topics for `tidelog apply`: what they mean, and which faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.applying import declarations, topics_file
from tidelog.cli.applying.declarations import DeclaredTopic, declared_topics
from tidelog.cli.applying.topics_file import parse_yaml, read_topics
from tidelog.cli.exit_status import UsageError


def parsed(text: str) -> list[DeclaredTopic]:
    return declared_topics([("topics.yaml", parse_yaml(text.encode(), "topics.yaml"))])


def test_values_are_text_as_other_commands_take_them() -> None:
    (topic,) = parsed(
        "topics: {sea: {partitions: 6, replication_factor: 3, config: {retention_ms: 1_000, "
        "unclean_leader_election: true, recovery: manual, retention_bytes: -1}}}"
    )
    assert (topic.partitions, topic.replication_factor) == (6, 3)
    assert topic.config == {
        "retention_ms": "1000",
        "unclean_leader_election": "true",
        "recovery": "manual",
        "retention_bytes": "-1",
    }


def test_durations_and_sizes_may_have_units() -> None:
    (topic,) = parsed("topics: {sea: {config: {retention_ms: 7d, segment_bytes: 256MiB}}}")
    assert topic.config == {"retention_ms": "604800000", "segment_bytes": "268435456"}


def test_a_field_that_is_left_out_is_not_managed() -> None:
    bare, empty = parsed("topics: {bay:, sea: {config: }}")
    assert bare == DeclaredTopic("bay")
    assert (empty.partitions, empty.config) == (None, {})


def test_json_is_accepted() -> None:
    assert parsed('{"topics": {"sea": {"partitions": 2}}}') == [DeclaredTopic("sea", 2)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topic: {}", "field 'topic', which does not exist; did you mean topics?"),
        ("topics: {}\nversion: 1", "field 'version', which does not exist; known fields: topics"),
        ("topics: {sea: {partition: 1}}", "topic sea has a field 'partition', which does not"),
        ("topics: {sea: {partition: 1}}", "did you mean partitions?"),
        ("topics: {sea: {replication: 3}}", "did you mean replication_factor?"),
        ("topics: {sea: {partitions: 0}}", "topic sea: partitions is 0; give a whole number"),
        ("topics: {sea: {partitions: true}}", "partitions is True"),
        ("topics: {sea: {partitions: '6'}}", "partitions is '6'"),
        ("topics: {sea: {replication_factor: 1.5}}", "replication_factor is 1.5"),
        ("topics: {sea: {config: [a]}}", "config is not a mapping"),
        ("topics: {sea: {config: {retention_ms: 1.5}}}", "config retention_ms is 1.5"),
        ("topics: {sea: {config: {segment_bytes: 5X}}}", "segment_bytes: '5X' is not a size"),
        ("topics: {sea: {config: {retention_ms: }}}", "leave the key out for its default"),
        ("topics: {sea: {config: {1: 2}}}", "the configuration key 1 is not text"),
        ("topics: {sea: 6}", "topic sea is not a mapping"),
        ("topics: {1: {}}", "the topic name 1 is not text; put it in quotes"),
        ("topics: {on: {}}", "the topic name True is not text"),
        ("topics: [sea]", "declares no topics"),
        ("[]", "is not a mapping"),
        ("", "is not a mapping"),
        ("topics: {sea: {}, bay: {}, sea: {}}", "line 1: 'sea' is given twice"),
        ("topics:\n  sea:\n    partitions: 1\n    partitions: 2", "line 4: 'partitions' is given"),
        ("topics: {", "is not YAML"),
        ("topics: {a: {}}\n---\ntopics: {b: {}}", "is not YAML: expected a single document"),
        ("topics: !!python/object:os.system {}", "is not YAML: could not determine a constructor"),
        (
            "topics: {sea: {replication_factor: 2, config: {min_insync_replicas: 3}}}",
            "min_insync_replicas is 3 and replication_factor 2",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as found:
        parsed(text)
    assert "topics.yaml" in str(found.value)
    assert problem in str(found.value)


def test_bytes_that_are_not_utf_8_are_a_fault() -> None:
    with pytest.raises(UsageError, match=r"topics\.yaml"):
        parse_yaml(b"topics: {\xff\xfe\x00: 1}", "topics.yaml")


def test_topics_of_several_files_are_declared_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("topics: {sea: {}, bay: {}}")
    (tmp_path / "b.yaml").write_text("topics: {reef: {}}")
    both = [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
    assert [topic.name for topic in read_topics(both)] == ["bay", "reef", "sea"]
    (tmp_path / "b.yaml").write_text("topics: {sea: {}}")
    with pytest.raises(UsageError, match=r"topic sea is declared in .*a\.yaml and in .*b\.yaml"):
        read_topics(both)


def test_size_and_number_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text("topics: {sea: {}, bay: {}}")
    monkeypatch.setattr(declarations, "MAX_DECLARED_TOPICS", 1)
    with pytest.raises(UsageError, match="2 topics are declared; apply at most 1 at once"):
        read_topics([str(tmp_path / "a.yaml")])
    monkeypatch.setattr(topics_file, "MAX_FILE_BYTES", 10)
    with pytest.raises(UsageError, match="more than 10 bytes"):
        read_topics([str(tmp_path / "a.yaml")])
