"""Configuration of the job `archive`: flags, variables and a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.model import TopicPartition
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import ReadOptions
from tidelog.spark.range_reader import SKIP_HINT
from tidelog_pipeline.archive.archive_config import (
    ACTIONS,
    ArchiveConfig,
    BackfillConfig,
    CompactConfig,
    RunConfig,
)
from tidelog_pipeline.archive.core.ranges import range_options
from tidelog_pipeline.job_command import load_action
from tidelog_pipeline.job_runner import with_flag_names
from tidelog_pipeline.storage.directory import directory_at

OUTPUT = ["--output", "/data/archive"]


def config_of(action: str, *flags: str) -> ArchiveConfig:
    return load_action("archive", ACTIONS, [action, *flags])


def run_config(*flags: str) -> RunConfig:
    config = config_of("run", *OUTPUT, *flags)
    assert isinstance(config, RunConfig)
    return config


def error_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load_action("archive", ACTIONS, argv)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_run_ends_unless_continuous() -> None:
    assert run_config("--topics", "sea,land").every_seconds is None
    config = run_config("--pattern", "sea-.*", "--every-seconds", "60", "--no-compaction")
    assert (config.every_seconds, config.pattern, config.topics) == (60, "sea-.*", [])
    assert (config.compaction, config.strict) == (False, False)


@pytest.mark.rule("jobs-configured-like-services")
def test_one_file_configures_all_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "archive.toml"
    file.write_text(
        'output = "/data/archive"\ntopics = ["sea"]\ntarget_mb = 64\nspark_master = "local[2]"\n'
    )
    compact = config_of("compact", "--config", str(file))
    assert isinstance(compact, CompactConfig)
    assert (compact.target_bytes, compact.spark_master) == (64 << 20, "local[2]")
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "a:1,b:2")
    backfill = config_of("backfill", "--config", str(file), "--since", '{"sea": {"0": 23}}')
    assert isinstance(backfill, BackfillConfig)
    assert (backfill.topics, backfill.since) == (["sea"], '{"sea": {"0": 23}}')
    assert backfill.bootstrap_servers == "a:1,b:2"


def test_a_setting_that_no_action_has_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "archive.toml"
    file.write_text('output = "/data/archive"\ntarget_md = 64\n')
    message = error_text(capsys, "compact", "--config", str(file))
    assert "sets target_md, which does not exist; did you mean target_mb?" in message


def test_an_unknown_action_is_answered_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = error_text(capsys, "rnu")
    assert "there is no action 'rnu'" in message
    assert all(name in message for name in ACTIONS)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "either topics (as sea,land) or pattern"),
        (["--topics", "sea", "--pattern", "sea"], "either topics"),
        (["--topics", "sea", "--value", "json"], "value_schema is not set, which value = json"),
        (["--topics", "sea", "--value-schema", "id INT"], "value_schema needs value = json"),
        (["--topics", "sea", "--value", "raw", "--keep-raw"], "keep_raw is for value = json or"),
        (["--topics", "sea", "--keep-raw"], "keep_raw is for value = json or protobuf"),
        (["--topics", "sea", "--value", "protobuf", "--message", "Tide"], "descriptors is not set"),
        (["--topics", "sea", "--every-seconds", "0"], "from the flag --every-seconds"),
        (["--topics", "sea", "--on-data-loss", "go"], "'fail' or 'continue'"),
        (["--topics", "sea", "--bootstrap", "a"], "give host:port"),
        (["--pattern", "sea("], "is not a regular expression"),
    ],
)
def test_invalid_settings_are_reported(
    flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in error_text(capsys, "run", *OUTPUT, *flags)


def test_an_archive_is_in_a_file_system(capsys: pytest.CaptureFixture[str]) -> None:
    message = error_text(capsys, "run", "--topics", "sea", "--output", "s3a://bucket/x")
    assert "must be a directory" in message


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/archive", "/data/archive"),
        ("/data/archive/", "/data/archive"),
        ("/data/archive#2", "/data/archive#2"),
        ("/data/archive?x=1", "/data/archive?x=1"),
        ("/data/archive;2", "/data/archive;2"),
        ("/data/my archive", "/data/my archive"),
        ("/data/%41", "/data/%41"),
        ("/data/part/..", "/data"),
        ("file:///data/my%20archive%232", "/data/my archive#2"),
        ("file:/data/archive", "/data/archive"),
        ("file://localhost/data/archive", "/data/archive"),
    ],
)
def test_a_path_is_used_as_it_is_and_only_a_uri_is_decoded(location: str, path: str) -> None:
    """A shortened path would be the directory of another archive."""
    assert directory_at(location).root == Path(path)


@pytest.mark.parametrize(
    "location", ["", "/", "//", "s3://bucket/x", "file://data/archive", "file:///data/a#2", "file:"]
)
def test_a_location_that_names_no_directory_is_rejected(location: str) -> None:
    with pytest.raises(ValueError, match=r"must be a directory|unescaped"):
        directory_at(location)


def test_a_range_is_in_utc_times_or_offsets() -> None:
    by_time = range_options(["sea"], "2026-11-22T10:00", "latest")
    assert (by_time["subscribe"], by_time["startingTimestamp"]) == ("sea", "1795341600000")
    assert by_time["endingOffsets"] == "latest"
    by_offset = range_options([], '{"sea": {"1": 5, "0": 7}}', "2026-11-22T10:00+01:00")
    assert by_offset["assign"] == '{"sea": [0, 1]}'
    assert by_offset["startingOffsets"] == '{"sea": {"1": 5, "0": 7}}'
    assert by_offset["endingTimestamp"] == "1795338000000"


@pytest.mark.parametrize("since", ["earliest", "2026-11-22T10:00", '{"sea": {"0": 5}}'])
def test_a_range_is_valid_for_the_data_source(since: str) -> None:
    topics = [] if since.startswith("{") else ["sea"]
    options = ReadOptions.of_batch(
        {"bootstrap.servers": "a:1", **range_options(topics, since, "latest")}
    )
    # A partition with only older records has nothing in a range of times.
    assert options.latest_if_none == since.startswith("2026")


@pytest.mark.parametrize(
    ("topics", "since", "problem"),
    [
        ([], "earliest", "option --topics is missing"),
        (["land"], '{"sea": {"0": 5}}', "names partitions of sea"),
        (["sea"], "yesterday", "option --since is 'yesterday'; it must be a time as"),
        (["sea"], "latest", "option --since is 'latest'; it must be"),
        (["sea"], "1960-01-01", "option --since is '1960-01-01'; it must be .*, not before 1970"),
    ],
)
def test_an_impossible_range_is_reported(topics: list[str], since: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        range_options(topics, since, "latest")


def test_a_range_does_not_end_before_it_starts() -> None:
    """A swapped range is not empty: it is a mistake."""
    with pytest.raises(OptionError, match="option --until is '2026-11-21', before --since"):
        range_options(["sea"], "2026-11-22", "2026-11-21")
    range_options(["sea"], "2026-11-22", "2026-11-22")


@pytest.mark.rule("jobs-configured-like-services")
def test_a_loss_error_names_existing_flags() -> None:
    error = DataLossError([f"{TopicPartition('sea', 0)}: offsets 0 to 9 are gone"])
    message = with_flag_names(error.message, RunConfig.option_to_flag)
    assert "set --on-data-loss to continue" in message
    assert "begin another archive (--output)" in message
    assert with_flag_names(SKIP_HINT, RunConfig.option_to_flag).endswith(
        "set --on-data-loss to continue"
    )


def test_an_offset_error_names_an_existing_flag() -> None:
    with pytest.raises(OptionError) as raised:
        ReadOptions.of_batch(
            {"bootstrap.servers": "a:1", **range_options(["sea"], "earliest", '{"sea": 3}')}
        )
    message = with_flag_names(raised.value.message, BackfillConfig.option_to_flag)
    assert "--until" in message
    assert "endingOffsets" not in message
