"""Spark reads from Tidelog beside Kafka: the data, the plan of a read, and the verdict."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from bench.kafka import maven
from bench.kafka.settings import Node, server_properties
from bench.report import missed_names, write_form
from bench.spark_read import results
from bench.spark_read.records import (
    KEY_BYTES,
    chunks,
    ends,
    in_partition,
    key_of,
    offsets_option,
    totals_of,
    value_of,
)
from bench.spark_read.results import BATCH, KAFKA, STREAM, TIDELOG, OneTask, Outcome, Reading
from bench.spark_read.run import SOURCE
from bench.spark_read.settings import FULL, QUICK

ALL = totals_of(FULL.records, FULL.value_bytes)
SECONDS = 25.0


def reading(source: str, pair: int, seconds: float = SECONDS, way: str = BATCH) -> Reading:
    return Reading(source, way, pair, ALL, seconds, 200.0, {"jvm": 20.0})


def outcome(*readings: Reading) -> Outcome:
    streams = (reading(source, 1, way=STREAM) for source in (TIDELOG, KAFKA))
    short = totals_of(FULL.task_records // 10, FULL.value_bytes)
    long = totals_of(FULL.task_records, FULL.value_bytes)
    return Outcome(FULL, {}, (*readings, *streams), OneTask(short, 200.0), OneTask(long, 201.0))


def pairs(*seconds: tuple[float, float]) -> list[Reading]:
    return [
        reading(source, number, of_source)
        for number, of_pair in enumerate(seconds, 1)
        for source, of_source in zip((TIDELOG, KAFKA), of_pair, strict=True)
    ]


def test_records_are_distributed_over_the_partitions_without_a_gap() -> None:
    parts = [in_partition(partition, 1_000, 12) for partition in range(12)]
    assert list(chain(*parts)) == list(range(1_000))
    assert {len(part) for part in parts} == {83, 84}
    assert ends(1_000, 12) == [len(part) for part in parts]


def test_chunks_cover_a_range() -> None:
    assert list(chunks(range(3, 10), 3)) == [range(3, 6), range(6, 9), range(9, 10)]


def test_every_key_and_value_has_its_size() -> None:
    for number in (0, 9, 9_999_999):
        assert len(key_of(number)) == KEY_BYTES
        assert len(value_of(number, 100)) == 100
        assert value_of(number, 100).rstrip(b"x") == b"%d" % number


def test_offsets_are_formatted_for_both_sources() -> None:
    assert json.loads(offsets_option("sea", [5, 7])) == {"sea": {"0": 5, "1": 7}}


def test_the_ratio_is_the_median_of_pairs() -> None:
    # The ratios of the pairs are 2.0, 0.5 and 1.0; the ratio of medians would differ.
    readings = pairs((10.0, 20.0), (40.0, 20.0), (30.0, 30.0))
    found = {result.name: result.value for result in results.verdicts(outcome(*readings[::-1]))}
    assert found["Tidelog over Kafka, batch"] == 1.0
    assert found["Tidelog, batch"] == pytest.approx(FULL.records / 30.0)
    assert found["Kafka, batch"] == pytest.approx(FULL.records / 20.0)


def test_within_all_bounds_nothing_is_named() -> None:
    assert missed_names(results.verdicts(outcome(*pairs((25.0, 20.0))))) == []


@pytest.mark.parametrize(
    ("seconds", "named"),
    [
        ((26.0, 20.0), ["Tidelog over Kafka, batch"]),
        ((34.0, 30.0), ["Tidelog, batch"]),
    ],
)
def test_a_speed_below_its_bound_is_named(seconds: tuple[float, float], named: list[str]) -> None:
    assert missed_names(results.verdicts(outcome(*pairs(seconds)))) == named


def test_memory_growth_of_a_task_with_its_range_is_named() -> None:
    of_all = outcome(*pairs((20.0, 20.0)))
    grown = replace(of_all, long=replace(of_all.long, worker_peak_mb=233.0))
    assert missed_names(results.verdicts(grown)) == ["growth of a task's peak, tenfold range"]


def test_the_speed_of_few_records_is_reported_without_a_bound() -> None:
    few = replace(outcome(*pairs((60.0, 20.0))), settings=QUICK)
    assert missed_names(results.verdicts(few)) == []


def test_a_read_that_lacks_a_row_is_reported() -> None:
    lacking = replace(reading(KAFKA, 1), totals=ALL._replace(rows=ALL.rows - 1))
    (reported,) = results.miscounted(outcome(reading(TIDELOG, 1), lacking))
    assert reported.startswith("kafka, batch 1: ")


def test_a_task_that_read_another_range_is_reported() -> None:
    of_all = outcome(*pairs((20.0, 20.0)))
    other = replace(of_all, short=of_all.long)
    (reported,) = results.miscounted(other)
    assert reported.startswith("a tenth of a partition: ")


def test_only_the_full_form_has_the_plain_name(tmp_path: Path) -> None:
    found = outcome(*pairs((20.0, 20.0)))
    assert (
        write_form(tmp_path, "bench-spark-read", results.content("full", found)).name
        == "bench-spark-read.json"
    )
    partial = write_form(tmp_path, "bench-spark-read", results.content("quick", found))
    assert partial.name == "bench-spark-read.partial.json"
    document = json.loads(partial.read_text())
    assert document["readings"][0]["rows_per_second"] == FULL.records // 20
    assert document["miscounted"] == document["not_met"] == []


def test_every_kafka_broker_has_all_voters_and_its_own_address() -> None:
    nodes = [Node(1, 9001, 9002), Node(2, 9003, 9004)]
    text = server_properties(nodes[1], nodes, "/data")
    given = dict(line.split("=", 1) for line in text.splitlines())
    assert given["node.id"] == "2"
    assert given["controller.quorum.voters"] == "1@127.0.0.1:9002,2@127.0.0.1:9004"
    assert given["listeners"] == "PLAINTEXT://127.0.0.1:9003,CONTROLLER://127.0.0.1:9004"
    assert given["log.dirs"] == "/data"


def test_a_release_is_read_from_its_jar() -> None:
    jars = [Path("/m2/org/a/a/1.0/a-1.0.jar"), Path("/m2/org/ab/ab/2.0/ab-2.0.jar")]
    assert maven.version("a", jars) == "1.0"


def test_a_missing_maven_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(maven.MavenError, match="Maven is not installed"):
        maven.jars(tmp_path / "some.xml", tmp_path)


def test_the_kafka_source_matches_the_installed_spark_release() -> None:
    root = Path(__file__).parents[3]
    given = re.search(
        r"spark-sql-kafka-0-10_2.13</artifactId>\s*<version>(\d+\.\d+)\.",
        SOURCE.read_text(),
    )
    locked = re.search(
        r"^pyspark==(\d+\.\d+)\.", (root / "requirements-spark.lock").read_text(), re.M
    )
    assert given
    assert locked
    assert given[1] == locked[1]
