"""Stored records of broker ids, as other releases read and write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_runtime.metadata.broker_directories import (
    BrokerDirectory,
    RejectedStart,
    RejectionCause,
    decode_broker_directory,
    encode_broker_directory,
    encode_rejected_start,
)
from tidelog_runtime.metadata.keys import BrokerDirectoryKey, Keys, RejectedStartKey
from tidelog_runtime.metadata.schema import RUNNING, BrokerRegistration, decode_broker, encode
from tidelog_runtime.metadata.store import KeyValue
from tidelog_runtime.registered_brokers import KnownDirectories

REGISTRATION = BrokerRegistration("10.0.0.1:7500", "a", "3f2a", RUNNING, 7, 5)
# Controllers of the previous release reject a registration with any other field.
PREVIOUS_RELEASE = (
    b'{"address":"10.0.0.1:7500","rack":"a","node_uuid":"3f2a","state":"running",'
    b'"whole_since":7,"synced_whole_since":5}'
)


def test_a_registration_is_written_as_by_the_previous_release() -> None:
    assert encode(REGISTRATION) == PREVIOUS_RELEASE
    assert decode_broker(PREVIOUS_RELEASE) == REGISTRATION


def test_fields_of_a_later_release_are_ignored() -> None:
    assert decode_broker(PREVIOUS_RELEASE[:-1] + b',"later":1}') == REGISTRATION
    directory = BrokerDirectory("3f2a", "token", host="north")
    value = encode_broker_directory(directory)
    assert decode_broker_directory(value[:-1] + b',"later":1}') == directory


def test_directory_keys_are_parsed_and_differ_from_registration_keys() -> None:
    keys = Keys("test")
    assert keys.parse(keys.directory(3)) == BrokerDirectoryKey(3)
    assert isinstance(keys.parse(keys.rejected_start(3)), RejectedStartKey)
    assert not keys.directory(3).startswith(keys.brokers)


def test_a_directory_of_another_registration_is_ignored() -> None:
    """A broker of the previous release has registered since."""
    known = KnownDirectories()
    known.directories[1] = BrokerDirectory("3f2a", "token", host="north", not_intact_reason="x")
    assert known.describe(1, 9, REGISTRATION).host == "north"
    known.directories[1] = BrokerDirectory("another", "token", host="south")
    described = known.describe(1, 9, REGISTRATION)
    assert (described.directory_id, described.host) == ("3f2a", "")


@pytest.mark.parametrize(("ran_at", "has_run_since"), [(0, False), (5, False), (9, True)])
def test_runs_since_a_rejected_start_are_found_by_revision(
    ran_at: int, has_run_since: bool
) -> None:
    """The record of a directory is written at each registration and each clean stop."""
    known = KnownDirectories()
    start = encode_rejected_start(RejectedStart(RejectionCause.ADDRESS, "r", 1))
    known.apply(RejectedStartKey(3), KeyValue("rejected", start, 7, 7))
    if ran_at:
        record = encode_broker_directory(BrokerDirectory("3f2a", "token"))
        known.apply(BrokerDirectoryKey(3), KeyValue("directory", record, 1, ran_at))
    (described,) = known.described_rejections()
    assert described.has_run_since == has_run_since


SECOND = RejectedStart(
    RejectionCause.BROKER_ID_IN_USE, "r", 1, host="north", data_dir="/data", directory_id="77aa"
)


@pytest.mark.parametrize(
    ("start", "directory", "ran_at", "is_reported"),
    [
        (SECOND, BrokerDirectory("77aa", "token"), 9, False),
        # The directory was emptied meanwhile.
        (SECOND, BrokerDirectory("5e5e", "token", host="north", data_dir="/data"), 9, False),
        (SECOND, BrokerDirectory("77aa", "token"), 5, True),
        (SECOND, BrokerDirectory("5e5e", "token", host="south", data_dir="/data"), 9, True),
        (replace(SECOND, directory_id="", data_dir=""), BrokerDirectory("", "token"), 9, True),
        # The directory of broker 4 is started as broker 1: that one is no more started.
        (
            replace(SECOND, cause=RejectionCause.DATA_DIRECTORY),
            BrokerDirectory("77aa", "token"),
            9,
            True,
        ),
    ],
)
def test_a_rejected_process_that_has_run_under_another_id_since_claims_the_id_no_more(
    start: RejectedStart, directory: BrokerDirectory, ran_at: int, *, is_reported: bool
) -> None:
    """Whether that broker runs now or not."""
    known = KnownDirectories()
    known.apply(RejectedStartKey(1), KeyValue("rejected", encode_rejected_start(start), 7, 7))
    own = encode_broker_directory(BrokerDirectory("3f2a", "token"))
    known.apply(BrokerDirectoryKey(1), KeyValue("directory", own, 1, 8))
    record = encode_broker_directory(directory)
    known.apply(BrokerDirectoryKey(4), KeyValue("directory", record, 1, ran_at))
    assert bool(known.described_rejections()) == is_reported
